//! Finding objects that no name leads to.

use std::collections::HashSet;
use std::io;
use std::path::{Path, PathBuf};

use super::objects::ROOT;
use super::{StripedTree, id_of};
use crate::object_id::{OBJECTS, ObjectId};
use crate::{Tree, private};

/// What a sweep has removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// Objects, counted on each target.
    pub objects: u64,
    /// Bytes of their sizes.
    pub bytes: u64,
}

impl StripedTree {
    /// Removes the objects of files that have no name, as a crash may leave them. Files that are open have one, among the orphans of
    /// the server that has the names; so have those that were removed, whose objects go a little later. Files may be made and removed
    /// meanwhile, but not renamed. Removes nothing if not all names could be read.
    pub fn sweep(&self) -> io::Result<Swept> {
        self.stripes.take_over();
        // Before the names: what is made from now on is not among them.
        let mut objects = Vec::new();
        for target in 0..self.stripes.targets.len() {
            for (directory, is_directory, _) in self.list(target, Path::new(OBJECTS))? {
                if !is_directory {
                    continue;
                }
                for (path, _, size) in self.list(target, &directory)? {
                    let name = path.file_name().map_or(&[][..], |name| name.as_encoded_bytes());
                    if let Some(id) = ObjectId::parse(name) {
                        objects.push((target, id, size));
                    }
                }
            }
        }
        let named = self.named()?;
        let mut swept = Swept::default();
        for (target, id, size) in objects {
            if named.contains(&id) || self.stripes.opened(id).is_some() {
                continue;
            }
            match self.stripes.targets[target].unlink(ROOT, &id.path(), false) {
                Err(error) if error.raw_os_error() == Some(libc::ENOENT) => {}
                removed => {
                    removed?;
                    swept.objects += 1;
                    swept.bytes += size;
                }
            }
        }
        Ok(swept)
    }

    /// What is in a target's directory: paths, whether they are directories, sizes.
    fn list(&self, target: usize, directory: &Path) -> io::Result<Vec<(PathBuf, bool, u64)>> {
        list(&*self.stripes.targets[target], directory).map(|found| {
            found.into_iter().map(|(path, attr)| (path, is_directory(attr.mode), attr.size)).collect()
        })
    }

    /// The objects of all files that have a name.
    fn named(&self) -> io::Result<HashSet<ObjectId>> {
        let mut named = HashSet::new();
        let mut directories = vec![PathBuf::new()];
        while let Some(directory) = directories.pop() {
            let entries = match list(&*self.names, &directory) {
                // Removed meanwhile.
                Err(error) if error.raw_os_error() == Some(libc::ENOENT) => continue,
                entries => entries?,
            };
            for (path, attr) in entries {
                if is_directory(attr.mode) {
                    directories.push(path);
                } else if let Some(id) = id_of(&attr) {
                    named.insert(id);
                }
            }
        }
        // Files that were removed, and are open somewhere or wait. After the others, as names only go this way.
        for own in [private::ORPHANS, private::REMOVED] {
            let own = Path::new(private::NAME).join(own);
            named.extend(list(&*self.names, &own)?.iter().filter_map(|(_, attr)| id_of(attr)));
        }
        Ok(named)
    }
}

fn is_directory(mode: u32) -> bool {
    mode & libc::S_IFMT == libc::S_IFDIR
}

fn list(tree: &dyn Tree, directory: &Path) -> io::Result<Vec<(PathBuf, iogate_core::wire::Attr)>> {
    use std::os::unix::ffi::OsStrExt;
    let mut found = Vec::new();
    tree.read_dir(ROOT, directory, 0, &mut |entry, name| {
        found.push((directory.join(std::ffi::OsStr::from_bytes(name)), entry.attr));
        true
    })?;
    Ok(found)
}
