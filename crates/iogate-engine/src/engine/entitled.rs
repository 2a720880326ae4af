//! What requests are told apart by.

use core::fmt;

// Not what the tests of interleavings see: a request that is told apart as before is as good as one that came before.
use std::sync::atomic::{AtomicU8, Ordering};

/// What a class of a policy is, and so what front ends take for a request's application.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClassBy {
    /// The application, as processes name it.
    #[default]
    App,
    /// The job of a batch system or a launcher; outside of one, the user.
    Job,
    /// The account that the job is charged to; outside of one, the user.
    Account,
    /// The user, as the kernel or the authentication of a connection says.
    User,
    /// The file, by its path: see [`Engine::class_by_path`](super::Engine::class_by_path).
    Path,
}

impl ClassBy {
    /// All of them.
    pub const ALL: [ClassBy; 5] =
        [ClassBy::User, ClassBy::Job, ClassBy::App, ClassBy::Account, ClassBy::Path];

    /// Its name, in flags and files.
    pub const fn name(self) -> &'static str {
        match self {
            ClassBy::App => "app",
            ClassBy::Job => "job",
            ClassBy::Account => "account",
            ClassBy::User => "user",
            ClassBy::Path => "path",
        }
    }

    /// By its name.
    pub fn by_name(name: &str) -> Option<ClassBy> {
        ClassBy::ALL.into_iter().find(|by| by.name() == name)
    }
}

impl fmt::Display for ClassBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The one in force.
#[derive(Debug, Default)]
pub(super) struct InForce(AtomicU8);

impl InForce {
    pub(super) fn set(&self, by: ClassBy) {
        self.0.store(by as u8, Ordering::Relaxed);
    }

    pub(super) fn get(&self) -> ClassBy {
        let number = self.0.load(Ordering::Relaxed);
        ClassBy::ALL.into_iter().find(|by| *by as u8 == number).unwrap_or_default()
    }
}
