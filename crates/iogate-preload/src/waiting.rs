//! Waiting for descriptors: a file is always ready.

use std::ffi::{c_int, c_void};

use libc::{fd_set, nfds_t, pollfd, timespec, timeval};

use crate::abi::{In, Out};
use crate::failed::set_errno;
use crate::table;

/// Waits for a list of descriptors of which some are ours: for those that are not, without waiting.
///
/// # Safety
/// `list` is valid for `count` elements.
unsafe fn poll_with(
    list: *mut pollfd,
    count: nfds_t,
    real: impl FnOnce(*mut pollfd, bool) -> c_int,
) -> c_int {
    if list.is_null() || count == 0 {
        return real(list, true);
    }
    // SAFETY: the caller's promise.
    let theirs = unsafe { std::slice::from_raw_parts_mut(list, count as usize) };
    if !theirs.iter().any(|entry| table::is_special(entry.fd)) {
        return real(list, true);
    }
    let mut copy = theirs.to_vec();
    let mut ready = 0;
    // What there is of each descriptor of ours.
    let mut ours = Vec::with_capacity(copy.len());
    for entry in &mut copy {
        let is_ours = table::find(entry.fd).is_some();
        let events = entry.events & (libc::POLLIN | libc::POLLOUT | libc::POLLRDNORM | libc::POLLWRNORM);
        if is_ours {
            entry.fd = -1;
            ready += c_int::from(events != 0);
        }
        ours.push(is_ours.then_some(events));
    }
    let result = real(copy.as_mut_ptr(), ready == 0);
    if result < 0 {
        return result;
    }
    for ((to, from), ours) in theirs.iter_mut().zip(&copy).zip(ours) {
        to.revents = ours.unwrap_or(from.revents);
    }
    result + ready
}

static AT_ONCE: timespec = timespec { tv_sec: 0, tv_nsec: 0 };

/// Takes our descriptors out of a set, and returns them.
fn take_ours(set: Out<fd_set>, count: c_int) -> Vec<c_int> {
    let set = set.pointer();
    if set.is_null() {
        return Vec::new();
    }
    let count = count.min(libc::FD_SETSIZE as c_int);
    // SAFETY: the caller's set, which has room for these numbers.
    let ours: Vec<c_int> =
        (0..count).filter(|fd| table::is_special(*fd) && unsafe { libc::FD_ISSET(*fd, set) }).collect();
    for fd in &ours {
        // SAFETY: as above.
        unsafe { libc::FD_CLR(*fd, set) };
    }
    ours
}

/// Waits for sets of descriptors of which some are ours.
fn select_with(count: c_int, sets: [Out<fd_set>; 3], real: impl FnOnce(bool) -> c_int) -> c_int {
    let [reads, writes, exceptions] = sets.map(|set| (set, take_ours(set, count)));
    let ready = reads.1.len() + writes.1.len();
    let result = real(ready == 0);
    drop(exceptions);
    if result < 0 {
        return result;
    }
    for (set, ours) in [reads, writes] {
        for fd in ours {
            // SAFETY: the caller's set, from which the number was taken.
            unsafe { libc::FD_SET(fd, set.pointer()) };
        }
    }
    result + ready as c_int
}

interpose! {
    fn poll[real](list: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int {
        // SAFETY: the caller's promise.
        unsafe { poll_with(list, count, |list, waits| real(list, count, if waits { timeout } else { 0 })) }
    }

    fn __poll_chk[real](list: *mut pollfd, count: nfds_t, timeout: c_int, room: usize) -> c_int {
        // SAFETY: the caller's promise.
        unsafe { poll_with(list, count, |list, waits| real(list, count, if waits { timeout } else { 0 }, room)) }
    }

    fn ppoll[real](list: *mut pollfd, count: nfds_t, timeout: *const timespec, mask: In<c_void>) -> c_int {
        // SAFETY: the caller's promise.
        unsafe {
            poll_with(list, count, |list, waits| {
                real(list, count, if waits { timeout } else { &raw const AT_ONCE }, mask)
            })
        }
    }

    fn select[real](
        count: c_int,
        reads: Out<fd_set>,
        writes: Out<fd_set>,
        exceptions: Out<fd_set>,
        timeout: *mut timeval,
    ) -> c_int {
        let mut at_once = timeval { tv_sec: 0, tv_usec: 0 };
        select_with(count, [reads, writes, exceptions], |waits| {
            real(count, reads, writes, exceptions, if waits { timeout } else { &raw mut at_once })
        })
    }

    fn pselect[real](
        count: c_int,
        reads: Out<fd_set>,
        writes: Out<fd_set>,
        exceptions: Out<fd_set>,
        timeout: *const timespec,
        mask: In<c_void>,
    ) -> c_int {
        select_with(count, [reads, writes, exceptions], |waits| {
            real(count, reads, writes, exceptions, if waits { timeout } else { &raw const AT_ONCE }, mask)
        })
    }

    fn epoll_ctl[real](epoll: c_int, operation: c_int, fd: c_int, event: Out<c_void>) -> c_int {
        if table::is_special(fd) {
            // As for any file.
            set_errno(libc::EPERM);
            return -1;
        }
        real(epoll, operation, fd, event)
    }
}
