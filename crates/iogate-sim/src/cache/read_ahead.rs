//! Read-ahead: which pages to read when a stream of reads wants some that are not there, or comes to a mark.
//!
//! Two rules, pure functions of what a stream has read:
//!
//! - [`Window::on_demand`] (from 2.6.23 on, `mm/readahead.c`; Wu, Xi, Xu: On the design of a new Linux readahead framework, 2008): a
//!   window that begins at two to four times the request and doubles (fourfold while small) each time that its mark is passed. A page
//!   carries the mark, so that streams that share a file go on with each other's.
//! - [`Window::two_windows`] (before, 2.6.18): a window and the one ahead of it, which is read when the first one is entered.
//!
//! Left out: looking for the traces of streams in the cache (2.6.31, `try_context_readahead`), the shrinking of windows after misses
//! (`RA_FLAG_MISS`), `fadvise`, and mapped files; and what later kernels (5.4) do otherwise on demand: they cut a first window with the one
//! behind it to what may be ahead, and add the request to a window at another stream's mark.

/// Pages to read: from the first, so many; and the one that gets the mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ahead {
    /// The first page.
    pub start: u64,
    /// How many.
    pub pages: u64,
    /// The page with the mark.
    pub mark: Option<u64>,
}

/// What is known of a stream of reads. All numbers are pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Window {
    start: u64,
    size: u64,
    /// From the window's mark to its end (on demand).
    rest: u64,
    /// The window ahead (two windows).
    ahead: Option<(u64, u64)>,
    /// The page after the last that was read.
    next: u64,
}

/// The first window for a request.
fn first(request: u64, max: u64) -> u64 {
    let size = request.next_power_of_two();
    if size <= max / 32 {
        size * 4
    } else if size <= max / 4 {
        size * 2
    } else {
        max
    }
}

/// The same in 2.6.18.
fn first_squared(request: u64, max: u64) -> u64 {
    let size = request.next_power_of_two();
    if size <= max / 64 {
        (size * size).min(max)
    } else if size <= max / 4 {
        max / 4
    } else {
        max
    }
}

/// The window after one of `size`.
fn grown(size: u64, max: u64) -> u64 {
    if size < max / 16 { (4 * size).min(max) } else { (2 * size).min(max) }
}

impl Window {
    /// A read wants `request` pages from `page` on, the first of which is not there, or has the mark: then `gap` is the first page behind
    /// it that is not there. `max` is at most so much ahead. `None`: nothing is read.
    pub fn on_demand(&mut self, page: u64, request: u64, max: u64, gap: Option<u64>) -> Option<Ahead> {
        let follows =
            page > 0 && (page == self.start + self.size - self.rest || page == self.start + self.size);
        if follows && self.size > 0 {
            self.start += self.size;
            self.size = grown(self.size, max);
            self.rest = self.size;
        } else if let Some(gap) = gap {
            if gap - page > max {
                return None;
            }
            (self.start, self.size) = (gap, grown(gap - page, max));
            self.rest = self.size;
        } else if page == self.next || page + 1 == self.next || request > max {
            (self.start, self.size) = (page, first(request, max));
            self.rest = if self.size > request { self.size - request } else { self.size };
        } else {
            return Some(Ahead { start: page, pages: request, mark: None });
        }
        if page == self.start && self.size == self.rest {
            self.rest = grown(self.size, max);
            self.size += self.rest;
        }
        let mark = Some(self.start + self.size - self.rest);
        Some(Ahead { start: self.start, pages: self.size, mark })
    }

    /// A read has come to `page` and wants `request` pages from there on. What is read, and at which page it asks again.
    pub fn two_windows(&mut self, page: u64, request: u64, max: u64, ahead: &mut Vec<Ahead>) -> u64 {
        let (mut page, mut request) = (page, request);
        if page + 1 == self.next {
            (page, request) = (page + 1, request - 1);
        }
        let sequential = page == self.next;
        let wanted = request.min(max);
        self.next = page + wanted;
        if wanted == 0 {
            return self.next.max(page + 1);
        }
        let mut read = |(start, pages): (u64, u64)| ahead.push(Ahead { start, pages, mark: None });
        if sequential && self.size == 0 {
            (self.start, self.size) = (page, first_squared(wanted, max));
            self.ahead = None;
            read((self.start, self.size));
            if request >= max {
                read(self.make_ahead(max));
            }
        } else if !sequential {
            (self.start, self.size, self.ahead) = (0, 0, None);
            read((page, wanted));
        } else {
            let (start, size) = match self.ahead {
                Some(window) => window,
                None => {
                    let window = self.make_ahead(max);
                    read(window);
                    window
                }
            };
            if self.next > start {
                (self.start, self.size) = (start, size);
                read(self.make_ahead(max));
            }
        }
        self.next
    }

    /// The window ahead of the present one.
    fn make_ahead(&mut self, max: u64) -> (u64, u64) {
        let window = (self.start + self.size, grown(self.size, max));
        self.ahead = Some(window);
        window
    }

    /// A read that ended before `page` is over.
    pub fn has_read(&mut self, page: u64) {
        self.next = page;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ahead(start: u64, pages: u64, mark: u64) -> Option<Ahead> {
        Some(Ahead { start, pages, mark: Some(mark) })
    }

    /// 128 KiB, and reads of one page: 4, 8, 16, 32, 32 pages, as in Wu's description.
    #[test]
    fn a_stream_of_pages_doubles_its_window_at_each_mark() {
        let mut window = Window::default();
        assert_eq!(window.on_demand(0, 1, 32, None), ahead(0, 4, 1));
        window.has_read(1);
        assert_eq!(window.on_demand(1, 1, 32, Some(4)), ahead(4, 8, 4));
        assert_eq!(window.on_demand(4, 1, 32, Some(12)), ahead(12, 16, 12));
        assert_eq!(window.on_demand(12, 1, 32, Some(28)), ahead(28, 32, 28));
        assert_eq!(window.on_demand(28, 1, 32, Some(60)), ahead(60, 32, 60));
    }

    #[test]
    fn a_large_read_has_two_windows_in_flight() {
        let mut window = Window::default();
        // 1 MiB: as much as may be ahead, and as much again, with the mark between.
        assert_eq!(window.on_demand(0, 256, 32, None), ahead(0, 64, 32));
        assert_eq!(window.on_demand(32, 224, 32, Some(64)), ahead(64, 32, 64));
    }

    #[test]
    fn random_reads_read_what_they_want() {
        let mut window = Window::default();
        assert_eq!(window.on_demand(700, 2, 32, None), Some(Ahead { start: 700, pages: 2, mark: None }));
        window.has_read(702);
        assert_eq!(window.on_demand(90, 1, 32, None), Some(Ahead { start: 90, pages: 1, mark: None }));
        // One that follows is a stream.
        window.has_read(91);
        assert_eq!(window.on_demand(91, 8, 32, None), ahead(91, 16, 99));
    }

    #[test]
    fn another_streams_mark_is_gone_on_with() {
        let mut window = Window::default();
        assert_eq!(window.on_demand(500, 1, 32, Some(508)), ahead(508, 16, 508));
        assert_eq!(Window::default().on_demand(500, 1, 32, Some(540)), None);
    }

    #[test]
    fn the_older_rule_reads_the_next_window_when_one_is_entered() {
        let mut window = Window::default();
        let mut read = |page, request| {
            let mut ahead = Vec::new();
            let next = window.two_windows(page, request, 32, &mut ahead);
            (ahead.iter().map(|ahead| (ahead.start, ahead.pages)).collect::<Vec<_>>(), next)
        };
        // Four pages at a time: a quarter of the most at first, then the one ahead of it, and the next when that is entered.
        assert_eq!(read(0, 4), (vec![(0, 8)], 4));
        assert_eq!(read(4, 4), (vec![(8, 16)], 8));
        assert_eq!(read(8, 4), (vec![(24, 32)], 12));
        assert_eq!(read(12, 4), (vec![], 16));
        assert_eq!(read(24, 4), (vec![(24, 4)], 28));
        // That was a jump: the stream starts anew.
        assert_eq!(read(28, 4), (vec![(28, 8)], 32));
    }

    #[test]
    fn the_older_rule_reads_both_windows_for_a_large_read() {
        let mut ahead = Vec::new();
        let next = Window::default().two_windows(0, 256, 32, &mut ahead);
        assert_eq!((ahead.len(), ahead[0].pages, ahead[1].start, ahead[1].pages, next), (2, 32, 32, 32, 32));
    }
}
