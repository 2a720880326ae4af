//! Writes at the end of a file: each behind the ones before it, whatever their order in the gate.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::{Arc, Mutex};

use iogate_core::FileId;

use super::lock;
use super::session::Session;
use crate::TreeFile;

/// Where the next append to each file goes, while appends are underway that the file's size does not show yet.
#[derive(Default)]
pub(super) struct Appends {
    files: Mutex<HashMap<FileId, Underway>>,
}

struct Underway {
    count: u32,
    end: u64,
}

/// An append that is underway; dropped when it has been carried out.
pub(super) struct AppendGuard {
    appends: Arc<Appends>,
    file: FileId,
    /// Where it goes.
    pub(super) offset: u64,
}

impl Appends {
    /// The offset of an append of `bytes` bytes: behind the file's end and the appends that are underway.
    pub(super) fn begin(self: &Arc<Self>, file: &dyn TreeFile, bytes: u32) -> io::Result<AppendGuard> {
        let id = file.data().id();
        let mut files = lock(&self.files);
        let offset = match files.get(&id) {
            Some(underway) => underway.end,
            None => file.attr()?.size,
        };
        let end =
            offset.checked_add(u64::from(bytes)).ok_or_else(|| io::Error::from_raw_os_error(libc::EFBIG))?;
        let underway = files.entry(id).or_insert(Underway { count: 0, end });
        underway.count += 1;
        underway.end = end;
        Ok(AppendGuard { appends: Arc::clone(self), file: id, offset })
    }
}

impl Drop for AppendGuard {
    fn drop(&mut self) {
        let mut files = lock(&self.appends.files);
        if let Some(underway) = files.get_mut(&self.file) {
            underway.count -= 1;
            if underway.count == 0 {
                files.remove(&self.file);
            }
        }
    }
}

type Job = Box<dyn FnOnce() + Send>;

/// Jobs that are carried out one after another, in the order in which they came, by workers.
#[derive(Default)]
pub(super) struct Lane {
    queue: Mutex<Queue>,
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    busy: bool,
}

impl Lane {
    /// Runs a job when all before it are done.
    pub(super) fn run(self: &Arc<Self>, session: &Session, job: impl FnOnce() + Send + 'static) {
        let mut queue = lock(&self.queue);
        queue.jobs.push_back(Box::new(job));
        if !std::mem::replace(&mut queue.busy, true) {
            let lane = Arc::clone(self);
            session.run(move || lane.work_off());
        }
    }

    fn work_off(&self) {
        loop {
            let mut queue = lock(&self.queue);
            let Some(job) = queue.jobs.pop_front() else {
                queue.busy = false;
                return;
            };
            drop(queue);
            super::guarded(job);
        }
    }
}
