//! What a command tries to do with a file, a directory, an address or a program: each attempt has one wording, and from it and from
//! the system's reason to refuse follows what to do. So no command spells out "no space left" for itself.

use std::fmt;
use std::io::{self, ErrorKind};

use anyhow::Error;
use rustix::io::Errno;

/// Kinds of attempts, by what helps when one is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Doing {
    /// A file that is there is read.
    Read,
    /// A file, or a folder for some, is written: it need not be there, what it is in must be.
    Write,
    /// A directory that is there is used.
    Enter,
    /// A program is started.
    Run,
    /// An address, or the path of a socket, is listened at.
    Listen,
    /// Whoever is up at an address or a mount point is asked.
    Ask,
}

/// The context of an error: says what was tried.
#[derive(Debug)]
pub(crate) struct Attempt {
    doing: Doing,
    said: String,
}

impl Attempt {
    /// An attempt that a message has words of its own for; none, where the error has said it.
    pub(crate) fn new(doing: Doing, said: impl fmt::Display) -> Attempt {
        Attempt { doing, said: said.to_string() }
    }

    /// To read a file.
    pub(crate) fn read(what: impl fmt::Display) -> Attempt {
        Attempt::new(Doing::Read, format_args!("{what} cannot be read"))
    }

    /// To write a file.
    pub(crate) fn write(what: impl fmt::Display) -> Attempt {
        Attempt::new(Doing::Write, format_args!("{what} cannot be written"))
    }

    /// To use a directory that must be there.
    pub(crate) fn enter(what: impl fmt::Display) -> Attempt {
        Attempt::new(Doing::Enter, format_args!("{what} must be a directory that can be read"))
    }

    /// To make a folder, with those that it is in.
    pub(crate) fn make(what: impl fmt::Display) -> Attempt {
        Attempt::new(Doing::Write, format_args!("{what} cannot be made"))
    }

    /// To start a program.
    pub(crate) fn run(what: impl fmt::Display) -> Attempt {
        Attempt::new(Doing::Run, format_args!("{what} cannot be run"))
    }
}

impl fmt::Display for Attempt {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.said)
    }
}

/// What to do about an error that comes from the system; `said` is all of its message. Where that goes on after the system's words, it
/// has its own advice, and nothing is added unless an attempt is named.
pub(crate) fn advice(error: &Error, said: &str) -> Option<&'static str> {
    let doing = error.downcast_ref::<Attempt>().map(|attempt| attempt.doing);
    let ends_with_it = said.ends_with(')') && said.contains("(os error ");
    if doing.is_none() && !ends_with_it {
        return None;
    }
    error.chain().find_map(of_system).and_then(|refused| what_to_do(&refused, doing))
}

/// The system's error, as far as it says what is wrong.
fn of_system(cause: &(dyn std::error::Error + 'static)) -> Option<(ErrorKind, Option<Errno>)> {
    if let Some(error) = cause.downcast_ref::<io::Error>() {
        return Some((error.kind(), error.raw_os_error().map(Errno::from_raw_os_error)));
    }
    let errno = *cause.downcast_ref::<Errno>()?;
    Some((errno.kind(), Some(errno)))
}

fn what_to_do(&(kind, errno): &(ErrorKind, Option<Errno>), doing: Option<Doing>) -> Option<&'static str> {
    // What the standard library has no kind for.
    match errno {
        Some(Errno::MFILE) => return Some("allow this shell more open files: `ulimit -n 65536`"),
        Some(Errno::NFILE) => return Some("this machine has no more open files: raise fs.file-max (sysctl)"),
        Some(Errno::NOEXEC) => {
            return Some("this machine cannot run that: check its architecture, or its first line (#!)");
        }
        Some(Errno::NXIO | Errno::NODEV) => {
            return Some("check that its device, or who reads its pipe, is there");
        }
        Some(Errno::LOOP) => return Some("its symbolic links lead in a circle: name the file itself"),
        Some(Errno::IO) => return Some("the storage has failed: the kernel's log (`dmesg`) says more"),
        _ => {}
    }
    Some(match (kind, doing) {
        (ErrorKind::NotFound, Some(Doing::Write)) => {
            "what it is to be in is not there: make it with `mkdir -p`, or name another place"
        }
        (ErrorKind::NotFound, Some(Doing::Enter)) => {
            "check the path, or create the directory with `mkdir -p`"
        }
        (ErrorKind::NotFound, Some(Doing::Run)) => "check its name and PATH, or give its whole path",
        (ErrorKind::NotFound, Some(Doing::Listen)) => {
            "what the socket is to be in is not there: make it with `mkdir -p`, or name another place"
        }
        (ErrorKind::NotFound, Some(Doing::Ask)) => "check the name: a mount point, HOST:PORT or unix:PATH",
        (ErrorKind::NotFound, _) => "check the path: one without / at its head begins where you are (`pwd`)",
        (ErrorKind::PermissionDenied, Some(Doing::Listen)) => {
            "choose a port from 1024 on or a socket in a directory of yours, or do it as root"
        }
        (ErrorKind::PermissionDenied, Some(Doing::Run)) => {
            "make it executable (`chmod +x`), or name a program"
        }
        (ErrorKind::PermissionDenied, _) => {
            "do it as a user who may, or change who may (`ls -ld` shows who, `chmod` changes it)"
        }
        (ErrorKind::IsADirectory, _) => "name a file, not a directory",
        (ErrorKind::NotADirectory, Some(Doing::Enter)) => "name a directory, not a file",
        (ErrorKind::NotADirectory, _) => "check the path: something in it is a file, not a directory",
        (ErrorKind::AlreadyExists, _) => "a file has that name: name another place, or move the file away",
        (ErrorKind::DirectoryNotEmpty, _) => "name an empty directory",
        (ErrorKind::StorageFull, _) => {
            "make room there (`df -h` shows how much there is), or name another place"
        }
        (ErrorKind::QuotaExceeded, _) => "remove what you no longer need there, or have your quota raised",
        (ErrorKind::ReadOnlyFilesystem, _) => {
            "that file system is mounted read-only: name a place on another one"
        }
        (ErrorKind::FileTooLarge, _) => {
            "allow larger files (`ulimit -f unlimited`), or use another file system"
        }
        (ErrorKind::InvalidFilename, _) => "give a shorter name",
        (ErrorKind::ResourceBusy, _) => "somebody uses it (`fuser -v` shows who): try again when it is free",
        (ErrorKind::ExecutableFileBusy, _) => "it is being written: try again when it is whole",
        (ErrorKind::ArgumentListTooLong, _) => "give fewer or shorter arguments",
        (ErrorKind::AddrInUse, _) => {
            "somebody listens there (`ss -lntxp` shows who): stop it, or choose another port or path"
        }
        (ErrorKind::AddrNotAvailable, _) => "name an address of this machine (`ip address` shows them)",
        (ErrorKind::ConnectionRefused, _) => "start what is to listen there, or check the address",
        (ErrorKind::ConnectionReset | ErrorKind::ConnectionAborted | ErrorKind::BrokenPipe, _) => {
            "the other side has gone: see whether it is up, and try again"
        }
        (ErrorKind::NotConnected, _) => "who served this mount has gone: `iogate umount --lazy` takes it off",
        (ErrorKind::StaleNetworkFileHandle, _) => "the server has it no more: open or mount it again",
        (ErrorKind::TimedOut | ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable, _) => {
            "check the address, and whether the machine is up and a firewall lets you through"
        }
        (ErrorKind::OutOfMemory, _) => "there is too little memory: end other programs, or ask for less",
        (ErrorKind::Unsupported, _) => {
            "neither this kernel nor this file system can do that: try another one"
        }
        (_, Some(Doing::Listen | Doing::Ask)) => "check the address: HOST:PORT or unix:PATH",
        (ErrorKind::InvalidData, Some(Doing::Read)) => {
            "expected text in UTF-8: check that it is the right file"
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use anyhow::{Context, anyhow};

    use super::*;

    /// What people meet in all commands.
    const USUAL: [Errno; 20] = [
        Errno::NOENT,
        Errno::ACCESS,
        Errno::PERM,
        Errno::ISDIR,
        Errno::NOTDIR,
        Errno::EXIST,
        Errno::NOSPC,
        Errno::DQUOT,
        Errno::ROFS,
        Errno::MFILE,
        Errno::NFILE,
        Errno::IO,
        Errno::NAMETOOLONG,
        Errno::LOOP,
        Errno::ADDRINUSE,
        Errno::ADDRNOTAVAIL,
        Errno::CONNREFUSED,
        Errno::TIMEDOUT,
        Errno::HOSTUNREACH,
        Errno::NOTCONN,
    ];

    fn of(error: &Error) -> Option<&'static str> {
        advice(error, &crate::failure::in_full(error))
    }

    #[test]
    fn usual_errors_have_advice_whatever_was_tried() {
        for errno in USUAL {
            assert!(of(&Error::new(io::Error::from(errno))).is_some(), "{errno}");
            for doing in [Doing::Read, Doing::Write, Doing::Enter, Doing::Run, Doing::Listen, Doing::Ask] {
                let error = Error::new(errno).context(Attempt::new(doing, "x"));
                assert!(of(&error).is_some(), "{errno}, {doing:?}");
            }
        }
    }

    #[test]
    fn advice_is_of_what_was_tried() {
        let missing = || Error::new(io::Error::from(Errno::NOENT));
        let read = of(&missing().context(Attempt::read("a")));
        assert_ne!(read, of(&missing().context(Attempt::write("a"))));
        assert_eq!(read, of(&missing().context("the file").context(Attempt::read("a")).context("more")));
    }

    #[test]
    fn an_error_that_says_what_to_do_is_left_alone() {
        let error = anyhow!("x").context(format!("{}; load the module", io::Error::from(Errno::NOENT)));
        assert_eq!(of(&error), None);
        let said: anyhow::Result<()> = Err(io::Error::from(Errno::NOENT)).context("nothing listens there");
        assert!(of(&said.unwrap_err()).is_some());
    }
}
