//! The groups of users, by this machine's user database.

use std::collections::HashMap;
use std::ffi::CStr;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long a user's groups are believed.
const VALID: Duration = Duration::from_secs(300);
/// Most users whose groups are kept.
const USERS_MAX: usize = 10_000;

/// The groups of users with a group.
type Found = HashMap<(u32, u32), Known>;

static FOUND: Mutex<Option<Found>> = Mutex::new(None);

struct Known {
    until: Instant,
    groups: Arc<[u32]>,
}

/// The groups of a user, with its primary one and with `gid`; only the latter if the user is not in the database. May take as long
/// as the database does, once in five minutes. Fails if the database cannot be asked.
pub fn of_user(uid: u32, gid: u32) -> io::Result<Arc<[u32]>> {
    let now = Instant::now();
    let lock = || FOUND.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = lock().get_or_insert_default().get(&(uid, gid))
        && known.until > now
    {
        return Ok(Arc::clone(&known.groups));
    }
    // Not under the lock: a user database may be far away.
    let groups: Arc<[u32]> = look_up(uid, gid)?.into();
    let mut found = lock();
    let found = found.get_or_insert_default();
    if found.len() >= USERS_MAX {
        found.clear();
    }
    found.insert((uid, gid), Known { until: now + VALID, groups: Arc::clone(&groups) });
    Ok(groups)
}

fn look_up(uid: u32, gid: u32) -> io::Result<Vec<u32>> {
    let mut text = vec![0; 1024];
    loop {
        let mut entry = std::mem::MaybeUninit::<libc::passwd>::uninit();
        let mut found = std::ptr::null_mut();
        // SAFETY: the text has as many bytes as said, and the other pointers lead to local variables.
        let error =
            unsafe { libc::getpwuid_r(uid, entry.as_mut_ptr(), text.as_mut_ptr(), text.len(), &mut found) };
        match error {
            libc::ERANGE if text.len() < 1 << 20 => text.resize(text.len() * 4, 0),
            0 if !found.is_null() => {
                // SAFETY: `found` leads to the entry, which was filled in; its name lies in the text.
                let (name, primary) = unsafe { (CStr::from_ptr((*found).pw_name), (*found).pw_gid) };
                let mut groups = list(name, primary)?;
                // A process may have another group than its user's primary one, and is a member of both.
                if !groups.contains(&gid) {
                    groups.push(gid);
                }
                return Ok(groups);
            }
            0 | libc::ENOENT | libc::ESRCH => return Ok(vec![gid]),
            error => return Err(io::Error::from_raw_os_error(error)),
        }
    }
}

fn list(user: &CStr, primary: u32) -> io::Result<Vec<u32>> {
    let mut groups: Vec<libc::gid_t> = vec![0; 64];
    loop {
        let mut count = groups.len() as libc::c_int;
        // SAFETY: the list has `count` entries.
        let got = unsafe { libc::getgrouplist(user.as_ptr(), primary, groups.as_mut_ptr(), &mut count) };
        let count = usize::try_from(count).unwrap_or(0);
        if got >= 0 {
            groups.truncate(count);
            return Ok(groups);
        }
        if count <= groups.len() {
            return Err(io::Error::from_raw_os_error(libc::EIO));
        }
        groups.resize(count, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_users_primary_group_and_that_of_the_process_are_both_there() {
        let database = std::fs::read_to_string("/etc/passwd").unwrap();
        let daemon = database.lines().find(|line| line.starts_with("daemon:")).unwrap();
        let fields: Vec<&str> = daemon.split(':').collect();
        let (uid, primary) = (fields[2].parse().unwrap(), fields[3].parse().unwrap());
        for _ in 0..2 {
            let found = of_user(uid, 54_321).unwrap();
            assert!(found.contains(&primary) && found.contains(&54_321), "{found:?}");
        }
        assert_eq!(of_user(3_999_999_999, 7).unwrap()[..], [7], "a user of another machine");
    }
}
