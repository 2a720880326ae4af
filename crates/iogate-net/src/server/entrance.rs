//! How many of the threads that read from connections an export may hold: no more than it leaves free.
//!
//! A thread that brings reads and writes to an export's gate waits there while the gate is full, and may carry out some of them.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use iogate_core::fair_queue::may_take;

use super::connection::Connection;
use super::export::Served;
use super::{Shared, THREADS_FREE, THREADS_MAX, lock};

/// Where threads enter an export.
#[derive(Default)]
pub(super) struct Entrance {
    inside: AtomicUsize,
    /// Connections that wait for a thread to come out.
    waiting: Mutex<VecDeque<Arc<Connection>>>,
}

/// A thread that is in an export; dropped when it comes out.
pub(super) struct Inside<'a> {
    server: &'a Shared,
    export: &'a Served,
}

impl Shared {
    /// Lets the calling thread bring a connection's reads and writes to an export. If it may not, somebody goes on with the
    /// connection later.
    pub(super) fn enter<'a>(
        &'a self,
        export: &'a Served,
        connection: &Arc<Connection>,
    ) -> Option<Inside<'a>> {
        let own = export.entrance.inside.fetch_add(1, Ordering::SeqCst);
        let inside = Inside { server: self, export };
        if self.has_thread_for(own) {
            return Some(inside);
        }
        self.kept_out.fetch_add(1, Ordering::SeqCst);
        lock(&export.entrance.waiting).push_back(Arc::clone(connection));
        // Leaving, it looks whether there is room now.
        drop(inside);
        None
    }

    fn has_thread_for(&self, own: usize) -> bool {
        // This thread is busy too.
        let used = self.threads.watchdog.busy_count().saturating_sub(1);
        may_take(own, used, THREADS_MAX - THREADS_FREE, 1)
    }

    /// Goes on with connections whose export may have a thread now, one of each.
    pub(super) fn let_in(&self) {
        for export in &self.exports {
            if !self.has_thread_for(export.entrance.inside.load(Ordering::SeqCst)) {
                continue;
            }
            let first = lock(&export.entrance.waiting).pop_front();
            if let Some(connection) = first {
                self.kept_out.fetch_sub(1, Ordering::SeqCst);
                self.requeue(connection);
            }
        }
    }
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        self.export.entrance.inside.fetch_sub(1, Ordering::SeqCst);
        if self.server.kept_out.load(Ordering::SeqCst) > 0 {
            self.server.let_in();
        }
    }
}
