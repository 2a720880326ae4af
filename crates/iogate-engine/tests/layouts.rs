//! Layouts of file systems: what is decoded from any bytes, and what is said of files on none of those systems.

use std::fs::File;
use std::os::fd::AsFd;

use iogate_core::FileLayout;
use iogate_engine::Layouts;
use iogate_engine::layouts::{System, beegfs, ceph, gluster, lustre};
use proptest::collection::vec;
use proptest::prelude::*;

/// Records that begin as those of Lustre do, so that more than the magic number is looked at.
fn lustre_like() -> impl Strategy<Value = Vec<u8>> {
    let magic = prop::sample::select(vec![0x0BD1_0BD0_u32, 0x0BD3_0BD0, 0x0BD6_0BD0]);
    let pattern = prop::sample::select(vec![1u32, 0x201, 0x100, 0x8000_0001]);
    let small = vec(prop_oneof![3 => 0u8..4, 1 => any::<u8>()], 0..400);
    (magic, pattern, small).prop_map(|(magic, pattern, rest)| {
        let mut bytes = magic.to_le_bytes().to_vec();
        bytes.extend(pattern.to_le_bytes());
        bytes.extend(rest);
        bytes
    })
}

proptest! {
    #[test]
    fn any_bytes_are_decoded_or_refused(bytes in vec(any::<u8>(), 0..300)) {
        let _ = lustre::decode(&bytes);
        let _ = beegfs::decode_info(&bytes);
        let _ = beegfs::decode_target(&bytes);
        let _ = ceph::decode(&bytes);
        let _ = ceph::decode_location(&bytes);
        let _ = gluster::decode(&bytes);
    }

    #[test]
    fn nearly_right_records_are_decoded_or_refused(bytes in lustre_like()) {
        if let Ok(extents) = lustre::decode(&bytes) {
            let _ = FileLayout::new(extents);
        }
    }

    #[test]
    fn nearly_right_words_are_decoded_or_refused(
        bricks in "[(<>):/ ]{0,8}(\\(?<(DISTRIBUTE|REPLICATE|POSIX\\(/b\\)):[a-z/:]{0,4}>?\\)?){0,5}",
        cut in "(stripe_unit|stripe_count|object_size| |=|[0-9]{1,22}){0,12}",
    ) {
        if let Ok(groups) = gluster::decode(bricks.as_bytes()) {
            prop_assert!(groups.iter().all(|group| !group.is_empty()));
        }
        if let Ok(cut) = ceph::decode(cut.as_bytes()) {
            prop_assert!(cut.stripe_unit > 0 && cut.object_size % cut.stripe_unit == 0);
        }
    }
}

#[test]
fn a_file_on_another_file_system_has_no_layout_and_that_is_no_error() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    std::fs::write(&path, "data").unwrap();
    let (file, directory) = (File::open(&path).unwrap(), File::open(folder.path()).unwrap());
    let layouts = Layouts::new();
    assert_eq!(System::of(file.as_fd()).unwrap(), None);
    for fd in [file.as_fd(), directory.as_fd()] {
        assert_eq!(layouts.of(fd).unwrap(), None);
        assert_eq!(layouts.learn(fd).unwrap(), None);
        assert_eq!(layouts.learn_or_warn(fd), None);
        assert_eq!(layouts.targets(fd).unwrap(), None);
    }
}
