//! Which class of a policy an open file is in by its path.

use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use iogate_core::AppId;
use iogate_core::glob::Glob;
use iogate_core::hash::HashMap;
use iogate_core::policy::{PathClasses, Policy};

use super::{ClassBy, Engine};

/// Classes of former policies whose globs are remembered, at most.
const CALLED_MAX: usize = 1 << 12;
/// Characters of what a class is called; a status has no room for more.
const NAME_CHARS_MAX: usize = 100;

/// The class that an open file is in by its path, as a front end keeps it with the file. At first none is known.
///
/// The number of the policy under which it was found, and the class.
#[derive(Debug, Default)]
pub struct PathClass(AtomicU64);

/// The globs of the policy in force.
#[derive(Debug, Default)]
pub(super) struct Paths {
    /// How many policies there have been: a class is found anew for each.
    policies: AtomicU32,
    in_force: RwLock<InForce>,
}

#[derive(Debug, Default)]
struct InForce {
    policies: u32,
    classes: Arc<PathClasses>,
    /// What classes are called, also those of policies before, which statistics still have.
    called: HashMap<AppId, String>,
}

impl Paths {
    /// Another policy is in force, or none.
    pub(super) fn policy_changed(&self, policy: Option<(ClassBy, &Policy)>) {
        let mut in_force = self.in_force.write().unwrap_or_else(PoisonError::into_inner);
        let InForce { policies, classes, called } = &mut *in_force;
        *policies = policies.wrapping_add(1);
        *classes = Arc::default();
        if let Some((ClassBy::Path, policy)) = policy {
            *classes = Arc::new(policy.paths.clone());
            if called.len() + classes.globs.len() >= CALLED_MAX {
                called.clear();
            }
            let name = |glob: &Glob| format!("path {glob}").chars().take(NAME_CHARS_MAX).collect();
            called.extend(classes.globs.iter().map(|(glob, class)| (*class, name(glob))));
            called.insert(classes.elsewhere, "other paths".into());
        }
        self.policies.store(*policies, Ordering::Release);
    }
}

impl Engine {
    /// The class of an open file, where [`Engine::class_by`] is [`ClassBy::Path`]: looked for with the first call since a policy came, and
    /// the same from then on, whatever the file is renamed to. `path` says where it is below what is mounted or served; `None`: nobody
    /// knows. To be asked when a file is opened, and before each request.
    pub fn class_by_path(&self, known: &PathClass, path: impl FnOnce() -> Option<PathBuf>) -> AppId {
        let found = known.0.load(Ordering::Relaxed);
        if (found >> u32::BITS) as u32 == self.paths.policies.load(Ordering::Acquire) {
            return AppId(found as u32);
        }
        let in_force = self.paths.in_force.read().unwrap_or_else(PoisonError::into_inner);
        let (policies, classes) = (in_force.policies, Arc::clone(&in_force.classes));
        drop(in_force);
        let class = classes.class(path().as_deref().map(|path| path.as_os_str().as_bytes()));
        known.0.store(u64::from(policies) << u32::BITS | u64::from(class.0), Ordering::Relaxed);
        class
    }

    /// What a class of files is called for people, of the policy in force or of one before it: `path checkpoints/**`, `other paths`.
    pub fn paths_called(&self, class: AppId) -> Option<String> {
        let in_force = self.paths.in_force.read().unwrap_or_else(PoisonError::into_inner);
        in_force.called.get(&class).cloned()
    }
}
