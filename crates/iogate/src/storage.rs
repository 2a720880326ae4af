//! What a directory lies on, as far as a default depends on it.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, anyhow};
use iogate_core::auto::driver::REQUESTS_PER_S;
use iogate_core::auto::{Pricing, Storage};
use iogate_core::device::Device;
use iogate_core::profile::{Profile, measure};
use iogate_core::{GateConfig, Layout, SchedulerConfig, SchedulerKind};
use iogate_engine::{Engine, Store};
use iogate_sim::profile::ProfileTextError;

use crate::cli::{KnownArgs, RoomArgs};
use crate::devices;
use crate::failure::Failure;
use crate::kept::KeptPrices;

/// Where the kernel tells of block devices by their numbers.
const DEVICES: &str = "/sys/dev/block";
/// How deep block devices may lie on each other.
const DEEPEST: u32 = 8;

/// The scheduler where none is named and nothing can be chosen: one that spares a disk its seeks if there is known to be one.
/// Elsewhere deliberate waits cost more than they gain, and whoever is behind a server schedules there.
pub(crate) fn fixed_scheduler(directory: Option<&Path>) -> SchedulerKind {
    if directory.is_some_and(is_lone_rotating_disk) { SchedulerKind::Aioli } else { SchedulerKind::Fifo }
}

/// The scheduler that a chosen one begins with: the fixed one, unless what is known of the storage says that sparing seeks does not
/// pay. With several targets nothing is chosen, and the fixed one stays.
pub(crate) fn first_scheduler(
    layout: &Layout,
    fixed: SchedulerKind,
    known: &Storage,
    depth: u32,
) -> SchedulerConfig {
    match fixed {
        SchedulerKind::Aioli if layout.targets == 1 => known.first(depth),
        _ => SchedulerConfig::new(fixed),
    }
}

/// A gate in front of a store of which this is known: with the scheduler that is pinned, or one that is chosen.
pub(crate) fn engine(
    pinned: Option<SchedulerConfig>,
    fixed: SchedulerKind,
    known: Storage,
    room: &RoomArgs,
    layout: Layout,
    store: Arc<dyn Store>,
) -> anyhow::Result<Arc<Engine>> {
    let is_chosen = pinned.is_none();
    let scheduler = pinned.unwrap_or_else(|| first_scheduler(&layout, fixed, &known, room.depth));
    let gate = GateConfig { scheduler, queue_max: room.queue, depth: room.depth, layout };
    let engine = Engine::new(&gate, store).context("the gate cannot be started")?;
    engine.know(known);
    if is_chosen {
        engine.choose(REQUESTS_PER_S).context("the thread that chooses cannot be started")?;
    }
    Ok(engine)
}

/// The profile in a file.
pub(crate) fn read_profile(file: &Path) -> anyhow::Result<Profile> {
    let text = std::fs::read_to_string(file).with_context(|| of_profile(file))?;
    iogate_sim::profile::read(&text).with_context(|| of_profile(file))
}

fn of_profile(file: &Path) -> String {
    format!("profile {}", file.display())
}

/// What is known of the storage below a directory, or behind servers: what was measured of it, if there is such a file.
fn measured(directory: Option<&Path>, file: &Path) -> anyhow::Result<Storage> {
    let profile = read_profile(file)?;
    let there = directory.map_or("servers".into(), kind);
    if profile.kind != there {
        let error = anyhow!("expected one of a {there}, found one of a {}", profile.kind);
        return Err(error.context(of_profile(file)));
    }
    Ok(Storage::kept(profile).told(format!("measured, {}", file.display())))
}

/// Where prices are from, as people say it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Profiles {
    /// From nowhere: they are assumed, and learnt meanwhile.
    None,
    /// From what is kept of the storage, which goes on.
    Kept,
    /// From a file.
    Measured(PathBuf),
}

impl Profiles {
    /// What was said, if anything was.
    pub(crate) fn of(said: Option<&Path>) -> Profiles {
        match said {
            None => Profiles::None,
            Some(said) if said == Path::new("kept") => Profiles::Kept,
            Some(file) => Profiles::Measured(file.to_owned()),
        }
    }
}

/// What is known of the storage below a directory, or behind servers, and what keeps what is learnt of it. `direct`: past the page cache.
pub(crate) fn known(
    directory: Option<&Path>,
    profiles: &Profiles,
    direct: bool,
) -> anyhow::Result<(Storage, Option<KeptPrices>)> {
    match (profiles, directory) {
        (Profiles::Measured(file), _) => Ok((measured(directory, file)?, None)),
        (Profiles::Kept, Some(directory)) => {
            let keeping = KeptPrices::of(directory, direct);
            let storage = keeping.as_ref().map_or_else(|| found(Some(directory)), KeptPrices::storage);
            Ok((storage, keeping))
        }
        _ => Ok((found(directory), None)),
    }
}

/// The same where a flag says so.
pub(crate) fn known_by(
    args: &KnownArgs,
    directory: Option<&Path>,
    direct: bool,
) -> Result<(Storage, Option<KeptPrices>), Failure> {
    let measure = "`iogate profile DIR --out FILE` measures what DIR lies on";
    let profiles = Profiles::of(args.profile.as_deref());
    known(directory, &profiles, direct).map_err(|error| Failure::usage(error).hint(measure))
}

/// What can be found out about it without measuring.
pub(crate) fn found(directory: Option<&Path>) -> Storage {
    match directory {
        Some(directory) => Storage::unknown(&kind(directory), is_lone_rotating_disk(directory)),
        None => Storage::unknown("servers", false),
    }
}

/// A modelled device, and where files lie on it.
struct Model<F> {
    maker: F,
    extent_bytes: u64,
}

impl<F: Fn() -> Box<dyn Device> + Send + Sync> Pricing for Model<F> {
    fn device(&self) -> Box<dyn Device> {
        (self.maker)()
    }

    fn extent_bytes(&self) -> u64 {
        self.extent_bytes
    }
}

/// What is known of a modelled device on which files lie in such extents: all of it.
pub(crate) fn modelled(spec: &str, extent_bytes: u64) -> Result<Storage, ProfileTextError> {
    const SEED: u64 = 1;
    let maker = devices::maker(spec)?;
    let profile = measure(maker(), SEED).finish(&format!("model {spec}"), false, None);
    Ok(Storage::modelled(profile, Arc::new(Model { maker, extent_bytes })))
}

/// Whether a directory is known to lie on a rotating disk.
pub(crate) fn is_rotational(directory: &Path) -> bool {
    lies_on(directory, is_rotating)
}

/// Whether a directory is known to lie on one rotating disk, and on no array of them.
pub(crate) fn is_lone_rotating_disk(directory: &Path) -> bool {
    lies_on(directory, is_lone_disk)
}

/// Whether the device that a directory lies on is known to be such a one.
fn lies_on(directory: &Path, is_such: fn(&Path, u64) -> bool) -> bool {
    directory.metadata().is_ok_and(|metadata| is_such(Path::new(DEVICES), metadata.dev()))
}

/// What a directory lies on, as far as a profile is only good for the same: the type of its file system.
pub(crate) fn kind(directory: &Path) -> String {
    let system =
        rustix::fs::statfs(directory).map_or("unknown".into(), |found| format!("{:#x}", found.f_type));
    format!("file system of type {system}")
}

/// Whether it is known to rotate. A hypervisor's disk says so unless somebody told the hypervisor better: there it says nothing.
fn is_rotating(devices: &Path, device: u64) -> bool {
    let device = place(devices, device);
    // A partition has the queue of its disk, which it lies in.
    let told = |queue: &str| std::fs::read_to_string(device.join(queue).join("rotational")).ok();
    told("queue").or_else(|| told("../queue")).is_some_and(|text| text.trim() == "1")
        && !disks(&device, DEEPEST).iter().any(|disk| is_virtual(disk))
}

/// Whether it is one rotating disk. Of an array that the kernel makes out of several, each has an arm of its own: one dispatch at a
/// time would let the others rest. An array that makes itself looks like one disk from here.
fn is_lone_disk(devices: &Path, device: u64) -> bool {
    is_rotating(devices, device) && disks(&place(devices, device), DEEPEST).len() == 1
}

/// Where the kernel tells of a device.
fn place(devices: &Path, device: u64) -> PathBuf {
    devices.join(format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device)))
}

/// The disks that a device is made of, by what it and those below it say that they lie on.
fn disks(device: &Path, deepest: u32) -> Vec<PathBuf> {
    let of_partition = || std::fs::read_dir(device.join("../slaves"));
    let below: Vec<PathBuf> = std::fs::read_dir(device.join("slaves"))
        .or_else(|_| of_partition())
        .map(|slaves| slaves.flatten().map(|one| one.path()).collect())
        .unwrap_or_default();
    match deepest {
        1.. if !below.is_empty() => below.iter().flat_map(|one| disks(one, deepest - 1)).collect(),
        _ => vec![device.to_owned()],
    }
}

/// Whether a disk is one that a hypervisor makes: by the bus that it hangs on, or by who is said to have made it.
fn is_virtual(disk: &Path) -> bool {
    const BUSES: [&str; 3] = ["virtio", "vbd-", "VMBUS"];
    const VENDORS: [&str; 4] = ["QEMU", "VMware", "VBOX", "Msft"];
    // An emulated disk of ATA has its maker in its model.
    const EMULATED: &str = "ATA";
    let Ok(disk) = disk.canonicalize() else { return false };
    let is_bus = |name: &str| BUSES.iter().any(|bus| name.starts_with(bus));
    let said = |file: &str| {
        let of = |device: &str| std::fs::read_to_string(disk.join(device).join(file)).ok();
        of("device").or_else(|| of("../device")).unwrap_or_default()
    };
    let vendor = said("vendor");
    let maker = if vendor.trim() == EMULATED { said("model") } else { vendor };
    disk.iter().filter_map(|part| part.to_str()).any(is_bus)
        || VENDORS.iter().any(|vendor| maker.starts_with(vendor))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_rotating_disk_and_its_partitions_are_known_and_nothing_else_is() {
        let system = tempfile::tempdir().unwrap();
        let (devices, path) = (system.path().join("block"), |path: &str| system.path().join(path));
        fs::create_dir(&devices).unwrap();
        for (disk, minor, rotational) in [("sda", 0, "1\n"), ("sdb", 16, "0\n")] {
            fs::create_dir_all(path(&format!("{disk}/queue"))).unwrap();
            fs::create_dir(path(&format!("{disk}/{disk}1"))).unwrap();
            fs::write(path(&format!("{disk}/queue/rotational")), rotational).unwrap();
            symlink(path(disk), devices.join(format!("8:{minor}"))).unwrap();
            symlink(path(&format!("{disk}/{disk}1")), devices.join(format!("8:{}", minor + 1))).unwrap();
        }
        let rotating = |minor| is_rotating(&devices, rustix::fs::makedev(8, minor));
        assert_eq!([0, 1, 16, 17, 32].map(rotating), [true, true, false, false, false]);
        assert_eq!(
            [0, 1, 16].map(|minor| is_lone_disk(&devices, rustix::fs::makedev(8, minor))),
            [true, true, false]
        );
        assert_eq!(fixed_scheduler(None), SchedulerKind::Fifo);
        assert_eq!(fixed_scheduler(Some(Path::new("/proc"))), SchedulerKind::Fifo);
    }

    /// A hypervisor that knows nothing of what lies below has its disks say that they rotate.
    #[test]
    fn what_a_virtual_disk_says_of_itself_is_not_believed() {
        let system = tempfile::tempdir().unwrap();
        let path = |path: &str| system.path().join(path);
        let devices = path("dev-block");
        fs::create_dir(&devices).unwrap();
        // Where it hangs, its vendor and model if it has any, and whether it is believed to rotate.
        let all: [(&str, &str, &str, bool); 8] = [
            ("pci0000:00/0000:00:02.0/virtio1/block/vda", "0x1af4", "", false),
            ("pci0000:00/virtio0/host0/target0:0:0/0:0:0:0/block/sda", "ATA", "ST4000NM0033", false),
            ("vbd-51712/block/xvda", "", "", false),
            ("LNXSYSTM:00/VMBUS:01/f8b3781b/host1/block/sdb", "Msft", "Virtual Disk", false),
            ("pci0000:00/host2/block/sdc", "VMware", "Virtual disk", false),
            ("pci0000:00/ata1/host3/block/sdd", "ATA", "QEMU HARDDISK", false),
            ("pci0000:00/ata2/host4/block/sde", "ATA", "ST4000NM0033", true),
            ("pci0000:00/host5/block/sdf", "SEAGATE", "ST8000NM0075", true),
        ];
        for (minor, (place, vendor, model, _)) in all.iter().enumerate() {
            fs::create_dir_all(path(place).join("queue")).unwrap();
            fs::create_dir(path(place).join("device")).unwrap();
            fs::create_dir(path(place).join("part1")).unwrap();
            fs::write(path(place).join("queue/rotational"), "1\n").unwrap();
            for (file, said) in [("vendor", vendor), ("model", model)] {
                if !said.is_empty() {
                    fs::write(path(place).join("device").join(file), format!("{said}\n")).unwrap();
                }
            }
            symlink(path(place), devices.join(format!("8:{minor}"))).unwrap();
            symlink(path(place).join("part1"), devices.join(format!("9:{minor}"))).unwrap();
        }
        // A volume on the first one, and one on the last one.
        for (minor, below) in [(0, all[0].0), (1, all[7].0)] {
            let volume = path(&format!("virtual/block/dm-{minor}"));
            fs::create_dir_all(volume.join("queue")).unwrap();
            fs::create_dir(volume.join("slaves")).unwrap();
            fs::write(volume.join("queue/rotational"), "1\n").unwrap();
            symlink(path(below), volume.join("slaves/below")).unwrap();
            symlink(&volume, devices.join(format!("10:{minor}"))).unwrap();
        }
        let rotates = |major, minor| is_rotating(&devices, rustix::fs::makedev(major, minor));
        for (minor, (place, .., expected)) in (0..).zip(all) {
            assert_eq!((rotates(8, minor), rotates(9, minor)), (expected, expected), "{place}");
        }
        assert_eq!([rotates(10, 0), rotates(10, 1)], [false, true]);
    }

    #[test]
    fn an_array_of_several_disks_is_not_taken_for_one() {
        let system = tempfile::tempdir().unwrap();
        let path = |path: &str| system.path().join(path);
        let devices = path("block");
        fs::create_dir(&devices).unwrap();
        // `md0` of two disks, with a partition; a volume on one disk; a volume on the array.
        let all: [(&str, &[&str]); 5] =
            [("sda", &[]), ("sdb", &[]), ("md0", &["sda", "sdb"]), ("dm-0", &["sda"]), ("dm-1", &["md0"])];
        for (minor, (name, below)) in all.iter().enumerate() {
            fs::create_dir_all(path(&format!("{name}/queue"))).unwrap();
            fs::create_dir(path(&format!("{name}/slaves"))).unwrap();
            fs::write(path(&format!("{name}/queue/rotational")), "1\n").unwrap();
            for one in *below {
                symlink(path(one), path(&format!("{name}/slaves/{one}"))).unwrap();
            }
            symlink(path(name), devices.join(format!("9:{minor}"))).unwrap();
        }
        fs::create_dir(path("md0/md0p1")).unwrap();
        symlink(path("md0/md0p1"), devices.join("9:5")).unwrap();
        let lone = |minor| is_lone_disk(&devices, rustix::fs::makedev(9, minor));
        assert_eq!([0, 1, 2, 3, 4, 5].map(lone), [true, true, false, true, false, false]);
    }
}
