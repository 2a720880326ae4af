//! Values by number: those of small numbers are found without a search.

use iogate_core::hash::HashMap;

/// Numbers below this one are small.
const FEW: u64 = 4_096;

/// A value for each number; most have none.
#[derive(Debug)]
pub(crate) struct ByNumber<T> {
    none: T,
    few: Vec<T>,
    others: HashMap<u64, T>,
}

impl<T: Copy> ByNumber<T> {
    /// For no number anything but `none`.
    pub(crate) fn new(none: T) -> ByNumber<T> {
        ByNumber { none, few: Vec::new(), others: HashMap::default() }
    }

    /// The value of a number, to be looked at or set.
    #[inline]
    pub(crate) fn of(&mut self, number: u64) -> &mut T {
        if number >= FEW {
            return self.others.entry(number).or_insert(self.none);
        }
        let place = number as usize;
        if self.few.len() <= place {
            self.few.resize(place + 1, self.none);
        }
        &mut self.few[place]
    }

    /// Takes out the value of a number.
    #[inline]
    pub(crate) fn take(&mut self, number: u64) -> T {
        match self.few.get_mut(number as usize) {
            Some(value) => std::mem::replace(value, self.none),
            None => self.others.remove(&number).unwrap_or(self.none),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_number_has_its_own_whether_it_is_small_or_not() {
        let mut all = ByNumber::new(0);
        let numbers = [0, 7, FEW - 1, FEW, u64::MAX];
        assert!(numbers.iter().all(|number| all.take(*number) == 0));
        for (number, value) in numbers.iter().zip(1..) {
            *all.of(*number) = value;
        }
        assert!(numbers.iter().zip(1..).all(|(number, value)| *all.of(*number) == value));
        assert!(numbers.iter().zip(1..).all(|(number, value)| all.take(*number) == value));
        assert!(numbers.iter().all(|number| *all.of(*number) == 0));
    }
}
