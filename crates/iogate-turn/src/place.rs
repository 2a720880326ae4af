//! The name of a file system, by a path in it: the same on all nodes where it is mounted.

use std::io;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};

use iogate_core::FileLayout;
use iogate_engine::layouts::mounts::Mount;
use iogate_engine::layouts::{LayoutError, Layouts, System};

use crate::Settings;

/// Where turns are taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    name: String,
    /// Where it can be probed.
    directory: Option<PathBuf>,
    targets: Vec<u32>,
}

impl Place {
    /// A place by its name. It cannot be probed.
    pub fn named(name: impl Into<String>) -> Place {
        Place { name: name.into(), directory: None, targets: Vec::new() }
    }

    /// The place that a path lies in, which need not be there yet. Its name is what `IOGATE_PLACES` says of the nearest directory, or
    /// else follows from the mount: `TYPE:SOURCE` of a network file system, such as `nfs:server:/scratch`, and `HOST:MOUNTPOINT` of others.
    /// A directory that a mount of iogate shows lies where its source lies: one storage is one place, through a gate or past it.
    ///
    /// # Errors
    /// If the path leads nowhere, or the list of mounts cannot be read.
    pub fn of(path: &Path, settings: &Settings) -> io::Result<Place> {
        let path = std::path::absolute(path)?;
        let directory = nearest_directory(&path)?;
        // By the name that it was called by, and by where that leads.
        let named = nearest(&settings.places, &path).or_else(|| nearest(&settings.places, &directory));
        if let Some(name) = named {
            return Ok(Place { name: name.to_owned(), directory: Some(directory), targets: Vec::new() });
        }
        let mounts = Mount::all()?;
        let Behind { named: at, probed } = behind_gates(&mounts, directory);
        let name = nearest(&settings.places, &at).map(str::to_owned).unwrap_or_else(|| {
            let node = rustix::system::uname();
            name_by_mount(&mounts, &at, &node.nodename().to_string_lossy())
        });
        Ok(Place { name, directory: Some(probed), targets: Vec::new() })
    }

    /// A name, or a path if it has a slash.
    ///
    /// # Errors
    /// As [`Place::of`]; a name that is empty or has control characters.
    pub fn of_text(text: &str, settings: &Settings) -> io::Result<Place> {
        match text.contains('/') {
            // A name by mount has slashes too; a path has no colon before its first one.
            true if text.find(':').is_none_or(|colon| text.find('/').is_some_and(|slash| slash < colon)) => {
                Place::of(text.as_ref(), settings)
            }
            _ if text.is_empty() || text.contains(char::is_control) => {
                let text = "expected a path, or the name of a place without control characters";
                Err(io::Error::new(io::ErrorKind::InvalidInput, text))
            }
            _ => Ok(Place::named(text)),
        }
    }

    /// What all who use it call it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A directory in it, if it was found by a path.
    pub fn directory(&self) -> Option<&Path> {
        self.directory.as_deref()
    }

    /// The targets that are meant, ascending; none: all of them.
    pub fn targets(&self) -> &[u32] {
        &self.targets
    }

    /// Only the targets that an open file lies on, where the file system says so with numbers that are the same everywhere, and for
    /// all that may still be written (Lustre and GlusterFS). Otherwise all, as before.
    ///
    /// # Errors
    /// If the file system answers what is not known here.
    pub fn narrow_to(&mut self, file: BorrowedFd<'_>) -> Result<(), LayoutError> {
        let system = System::of(file);
        let system = system
            .map_err(|cause| LayoutError::Asking { what: "the kind of the file system".into(), cause })?;
        if !matches!(system, Some(System::Lustre | System::GlusterFs)) {
            return Ok(());
        }
        if let Some(layout) = Layouts::new().of(file)? {
            self.narrow_to_layout(&layout);
        }
        Ok(())
    }

    fn narrow_to_layout(&mut self, layout: &FileLayout) {
        if layout.extents().last().is_none_or(|extent| extent.end != u64::MAX) {
            return;
        }
        let targets = layout.extents().iter().flat_map(|extent| &extent.targets);
        self.targets = targets.map(|target| target.0).collect();
        self.targets.sort_unstable();
        self.targets.dedup();
    }
}

/// The directory that a path lies in, as far as it is there.
fn nearest_directory(path: &Path) -> io::Result<PathBuf> {
    for ancestor in path.ancestors() {
        match std::fs::canonicalize(ancestor) {
            Ok(found) if found.is_dir() => return Ok(found),
            Ok(found) => {
                if let Some(parent) = found.parent() {
                    return Ok(parent.to_owned());
                }
            }
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::ErrorKind::NotFound.into())
}

fn nearest<'a>(places: &'a [(PathBuf, String)], path: &Path) -> Option<&'a str> {
    let around = places.iter().filter(|(directory, _)| path.starts_with(directory));
    around.max_by_key(|(directory, _)| directory.components().count()).map(|(_, name)| name.as_str())
}

/// Where a directory lies when mounts of iogate are looked behind.
#[derive(Debug, PartialEq, Eq)]
struct Behind {
    /// By which the place is named.
    named: PathBuf,
    /// The last one on the way there that this process may enter.
    probed: PathBuf,
}

fn behind_gates(mounts: &[Mount], directory: PathBuf) -> Behind {
    let mut found = Behind { named: directory.clone(), probed: directory };
    // A gate may stand in front of another one, and none in front of itself.
    for _ in mounts {
        let Some(behind) =
            Mount::around(mounts, &found.named).and_then(|mount| behind_gate(mount, &found.named))
        else {
            break;
        };
        match std::fs::metadata(&behind) {
            Ok(_) => found.probed.clone_from(&behind),
            // Everybody calls it the same, whoever may enter it.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {}
            // A source that this process does not see, as in a container, names nothing.
            Err(_) => break,
        }
        found.named = behind;
    }
    found
}

/// What a directory of a mount of iogate is in its source, if that is a directory.
fn behind_gate(mount: &Mount, directory: &Path) -> Option<PathBuf> {
    if mount.fs_type != "fuse.iogate" || !mount.source.starts_with('/') {
        return None;
    }
    let (shown, inner) = (mount.root.strip_prefix("/").ok()?, directory.strip_prefix(&mount.point).ok()?);
    Some(Path::new(&mount.source).components().chain(shown.components()).chain(inner.components()).collect())
}

fn name_by_mount(mounts: &[Mount], directory: &Path, host: &str) -> String {
    match (network_name(mounts, directory), Mount::around(mounts, directory)) {
        (Some(name), _) => name,
        (None, Some(mount)) => format!("{host}:{}", mount.point.display()),
        (None, None) => format!("{host}:/"),
    }
}

/// The name of the file system of a directory, `TYPE:SOURCE`, if it is one at the other end of a network.
pub fn network_name(mounts: &[Mount], directory: &Path) -> Option<String> {
    let Mount { fs_type, source, .. } = Mount::around(mounts, directory)?;
    const NETWORK: [&str; 10] =
        ["lustre", "beegfs", "ceph", "gpfs", "9p", "cifs", "smb3", "orangefs", "pvfs2", "fuse.glusterfs"];
    let is_network = fs_type.starts_with("nfs")
        || NETWORK.contains(&fs_type.as_str())
        || source.starts_with("//")
        || source.contains([':', '@']) && !source.starts_with('/');
    // One file system, whichever version of the protocol a node speaks.
    let fs_type = if fs_type == "nfs4" { "nfs" } else { fs_type };
    let source = match source.trim_end_matches('/') {
        bare if bare.ends_with(':') || bare.is_empty() => source,
        bare => bare,
    };
    is_network.then(|| format!("{fs_type}:{source}"))
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use iogate_core::{Extent, TargetId};

    use super::*;

    fn mount(point: &str, fs_type: &str, source: &str) -> Mount {
        Mount {
            id: 0,
            device: 0,
            root: "/".into(),
            point: point.into(),
            fs_type: fs_type.into(),
            source: source.into(),
            options: Vec::new(),
        }
    }

    fn settings(places: &str) -> Settings {
        Settings::read(&|name| (name == "IOGATE_PLACES").then(|| places.to_owned())).unwrap()
    }

    #[test]
    fn the_innermost_mount_names_the_place() {
        let mounts = [
            mount("/", "ext4", "/dev/sda1"),
            mount("/scratch", "ext4", "/dev/sdb1"),
            mount("/scratch", "nfs4", "io1:/scratch/"),
            mount("/work", "lustre", "10.0.0.1@tcp:/work"),
            mount("/home", "fuse.sshfs", "a@b:"),
            mount("/gpfs", "gpfs", "/dev/fs0"),
            mount("/v", "nfs", "io2:/"),
        ];
        let name = |path: &str| name_by_mount(&mounts, path.as_ref(), "n1");
        assert_eq!(name("/scratch/a"), "nfs:io1:/scratch");
        assert_eq!(name("/scratchy"), "n1:/");
        assert_eq!(name("/work"), "lustre:10.0.0.1@tcp:/work");
        assert_eq!(name("/home/x"), "fuse.sshfs:a@b:");
        assert_eq!(name("/gpfs"), "gpfs:/dev/fs0");
        assert_eq!(name("/v/w"), "nfs:io2:/");
    }

    #[test]
    fn a_gate_is_where_its_source_is() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        std::fs::create_dir_all(root.join("data/a/b")).unwrap();
        let (source, stacked) = (root.join("data"), root.join("stacked"));
        std::fs::create_dir_all(stacked.join("a")).unwrap();
        let gate = |point: &str, source: &Path| mount(point, "fuse.iogate", &source.to_string_lossy());
        let sub = Mount { root: "/a".into(), ..gate("/sub", &source) };
        let mounts = [
            mount("/", "ext4", "/dev/sda1"),
            gate("/gate", &source),
            gate(&stacked.to_string_lossy(), &source),
            gate("/outer", &stacked),
            sub,
            gate("/unseen", "/nowhere/at/all".as_ref()),
            gate("/servers", "io1:7000".as_ref()),
            mount("/other", "fuse.sshfs", &source.to_string_lossy()),
        ];
        let at = |path: &str| behind_gates(&mounts, path.into()).named;
        assert_eq!(at("/gate"), source);
        assert_eq!(at("/gate/a/b"), source.join("a/b"));
        assert_eq!(at("/sub/b"), source.join("a/b"), "a bind mount of a part");
        for same in ["/unseen/a", "/servers/a", "/other/a", "/elsewhere"] {
            assert_eq!(at(same), Path::new(same));
        }
        let behind = behind_gates(&mounts, "/gate/a".into());
        assert_eq!(behind, Behind { named: source.join("a"), probed: source.join("a") });
        assert_eq!(at("/outer/a"), source.join("a"), "a gate in front of a gate");
        let itself = [gate("/", "/".as_ref())];
        assert_eq!(behind_gates(&itself, "/".into()).named, Path::new("/"), "it comes to an end");
        assert_eq!(name_by_mount(&mounts, &at("/gate/a"), "n1"), "n1:/");
        assert_eq!(name_by_mount(&mounts, &at("/servers/a"), "n1"), "fuse.iogate:io1:7000");
    }

    #[test]
    fn the_nearest_directory_with_a_name_counts() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        std::fs::create_dir(root.join("inner")).unwrap();
        let inner = root.join("inner");
        let settings = settings(&format!("{}=outer:{}=inner", root.display(), inner.display()));
        let name = |path: &Path| Place::of(path, &settings).unwrap().name().to_owned();
        assert_eq!(name(&inner.join("not/there/yet")), "inner");
        assert_eq!(name(&root.join("innermost")), "outer");
        std::fs::write(inner.join("file"), "").unwrap();
        let place = Place::of(&inner.join("file"), &settings).unwrap();
        assert_eq!((place.name(), place.directory()), ("inner", Some(inner.as_path())));
        std::os::unix::fs::symlink(&inner, root.join("link")).unwrap();
        assert_eq!(name(&root.join("link/x")), "outer", "by the name that it was called by");
    }

    #[test]
    fn text_with_a_slash_is_a_path_unless_it_is_the_name_of_one() {
        let settings = settings("");
        assert_eq!(Place::of_text("scratch", &settings).unwrap(), Place::named("scratch"));
        assert_eq!(Place::of_text("nfs:io1:/x", &settings).unwrap(), Place::named("nfs:io1:/x"));
        for wrong in ["", "a\0b", "a\nb"] {
            let error = Place::of_text(wrong, &settings).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        }
        assert!(Place::of_text("./x:y", &settings).unwrap().directory().is_some());
        assert!(Place::of_text("/", &settings).unwrap().directory().is_some());
    }

    #[test]
    fn a_file_that_lies_on_few_targets_narrows_a_place_to_them() {
        let extent = |start, end, targets: &[u32]| Extent {
            start,
            end,
            stripe_bytes: 1 << 20,
            targets: targets.iter().copied().map(TargetId).collect(),
        };
        let narrowed = |extents| {
            let mut place = Place::named("lustre:x");
            place.narrow_to_layout(&FileLayout::new(extents).unwrap());
            place.targets().to_vec()
        };
        assert_eq!(narrowed(vec![extent(0, 64, &[7, 2, 7]), extent(64, u64::MAX, &[3, 2])]), [2, 3, 7]);
        assert_eq!(narrowed(vec![extent(0, 64, &[7, 2])]), [0; 0], "what is written later may lie anywhere");
    }

    #[test]
    fn a_file_of_this_machine_leaves_a_place_as_wide_as_it_was() {
        let file = tempfile::tempfile().unwrap();
        let mut place = Place::named("x");
        place.narrow_to(file.as_fd()).unwrap();
        assert_eq!(place, Place::named("x"));
    }
}
