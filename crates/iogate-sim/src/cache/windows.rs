//! What is known of the streams of reads of each file.

use std::collections::BTreeMap;

use super::Window;
use super::pages::File;
use crate::slab::Slab;

/// Streams of reads that are known at once.
const WINDOWS_MAX: usize = 1 << 16;
/// No window.
const NONE: u32 = u32::MAX;

/// The windows of read-ahead, by file and stream.
#[derive(Debug)]
pub(super) struct Windows {
    known: BTreeMap<(File, u64), u32>,
    windows: Slab<Window>,
    /// For each file the stream that was asked for last, and its window: most often it is the same again.
    lately: Vec<(u64, u32)>,
}

impl Default for Windows {
    fn default() -> Windows {
        Windows { known: BTreeMap::new(), windows: Slab::new(), lately: Vec::new() }
    }
}

impl Windows {
    /// What is known of a stream of reads.
    pub(super) fn of(&mut self, file: File, stream: u64) -> &mut Window {
        if self.known.len() > WINDOWS_MAX
            && let Some(((file, _), window)) = self.known.pop_first()
        {
            self.windows.free(window);
            self.lately[file.place()].1 = NONE;
        }
        let place = file.place();
        if self.lately.len() <= place {
            self.lately.resize(place + 1, (0, NONE));
        }
        let lately = &mut self.lately[place];
        if lately.1 == NONE || lately.0 != stream {
            let windows = &mut self.windows;
            let window = *self.known.entry((file, stream)).or_insert_with(|| windows.add(Window::default()));
            *lately = (stream, window);
        }
        &mut self.windows[lately.1]
    }
}
