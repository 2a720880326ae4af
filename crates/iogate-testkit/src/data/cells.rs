//! Cells that carry numbers.

use std::collections::BTreeMap;

use super::{Cell, Put, Times};

/// The cells of a file.
#[derive(Default)]
pub(super) struct Cells {
    /// Of each cell, what it was given, in that order; numbers grow.
    cells: BTreeMap<u64, Vec<Given>>,
    /// Nobody knows any more what is where.
    is_unknown: bool,
}

#[derive(Clone, Copy)]
struct Given {
    /// `None`: it was cut off.
    number: Option<u64>,
    put: Put,
}

impl Cells {
    pub(super) fn puts(&mut self) -> impl Iterator<Item = &mut Put> {
        self.cells.values_mut().flatten().map(|given| &mut given.put)
    }

    pub(super) fn forget(&mut self) {
        self.is_unknown = true;
    }

    pub(super) fn write(&mut self, at: u64, client: u64, first: u64, cells: u64, number: u64) {
        for cell in first..first + cells {
            let given = Given { number: Some(number), put: Put::new(at, client) };
            self.cells.entry(cell).or_default().push(given);
        }
    }

    pub(super) fn truncate(&mut self, at: u64, client: u64, cells: u64) {
        for given in self.cells.range_mut(cells..).map(|(_, given)| given) {
            given.push(Given { number: None, put: Put::new(at, client) });
        }
    }

    /// What was called at a time is answered.
    pub(super) fn done(&mut self, called: u64, now: u64, last_loss: u64) {
        self.puts().filter(|put| put.called == called).for_each(|put| put.is_answered(now, last_loss));
    }

    pub(super) fn collapse(&mut self, now: u64, client: u64, first: u64, cells: u64, is_lost: bool) {
        self.is_unknown |= is_lost;
        let last = |given: &Vec<Given>| given.iter().rev().find(|given| given.put.holds(now))?.number;
        let moved: Vec<(u64, Option<u64>)> = self
            .cells
            .range(first..)
            .map(|(&cell, _)| (cell, self.cells.get(&(cell + cells)).and_then(last)))
            .collect();
        for (cell, number) in moved {
            let mut put = Put::new(now, client);
            put.is_answered(now, 0);
            self.cells.entry(cell).or_default().push(Given { number, put });
        }
    }

    pub(super) fn read(
        &mut self,
        file: u64,
        Times { called, now, last_loss }: Times,
        first: u64,
        seen: &[Cell],
    ) -> Result<(), String> {
        if self.is_unknown {
            return Ok(());
        }
        for (cell, seen) in (first..).zip(seen) {
            let number = match *seen {
                Cell::Nothing => None,
                Cell::Number(of, number) if of == file => Some(number),
                Cell::Number(..) | Cell::Other => {
                    return Err(format!("cell {cell} has what is not of its file"));
                }
            };
            let given = self.cells.entry(cell).or_default();
            let floor = given.iter().rposition(|given| given.put.holds(called));
            let mut possible = given[floor.unwrap_or(0)..].iter_mut();
            // The latest one that it may be.
            match possible.rfind(|given| given.number == number) {
                Some(given) if number.is_some() => given.put.is_seen(called, now, last_loss),
                Some(_) => {}
                None if number.is_none() && floor.is_none() => {}
                None => {
                    let least = floor.and_then(|floor| given[floor].number);
                    let last = given.last().and_then(|given| given.number);
                    return Err(format!(
                        "cell {cell} has {number:?}, and was known to have {least:?}; the last written is {last:?}"
                    ));
                }
            }
        }
        Ok(())
    }
}
