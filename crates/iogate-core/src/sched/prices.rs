//! What a device charges, as far as deliberate waits need to know it.

use crate::request::Op;
use crate::time::Span;

/// One whole, as a fraction of a device's time in fixed point.
pub const WHOLE: u32 = 1 << 16;
/// No device is believed to charge more than this for one dispatch; it keeps the sums in range.
const SAVING_MAX: u64 = 1 << 40;

/// Prices that a gate is told of ([`Gate::set_prices`](crate::Gate::set_prices)). By default nothing is known, so nothing is
/// saved by continuing, and nobody waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Prices {
    /// By operation: what a dispatch saves that begins where its stream's last one ended, against one that jumps, if none, 1-3,
    /// or 4-15 others came between or are in service: c(jump) - c(i). After more of them nothing is saved.
    pub saving: [[Span; 3]; 2],
    /// X(n): dispatches a second (or in any other unit) with n = 1, 2, 4, 8, 16 and 32 in service.
    pub rate: [u32; 6],
}

impl Prices {
    /// Prices of a device where only the very next dispatch continues cheaply, such as a disk: what a jump costs more, by
    /// operation, and X(n).
    pub fn of_jumps(jump: [Span; 2], rate: [u32; 6]) -> Prices {
        Prices { saving: jump.map(|jump| [jump, Span::ZERO, Span::ZERO]), rate }
    }

    /// J: what a piece saves that is waited for after so many `others`, against one that comes when `ahead` more have gone first:
    /// c(others + ahead) - c(others). Where only c(0) is less than a jump, that is c(jump) - c(0).
    pub fn saving_before(&self, op: Op, others: u32, ahead: u32) -> Span {
        self.saving(op, others) - self.saving(op, others.saturating_add(ahead))
    }

    /// What continuing saves after so many others, against a jump.
    pub fn saving(&self, op: Op, others: u32) -> Span {
        let saving = match others {
            0 => self.saving[op as usize][0],
            1..4 => self.saving[op as usize][1],
            4..16 => self.saving[op as usize][2],
            _ => Span::ZERO,
        };
        saving.min(Span::from_nanos(SAVING_MAX))
    }

    /// After how many others nothing is saved any more: 0, 1, 4 or 16.
    pub(super) fn reach(&self) -> u32 {
        let saves = |class: usize| self.saving.iter().any(|of_op| of_op[class] > Span::ZERO);
        [(2, 16), (1, 4), (0, 1)].into_iter().find(|(class, _)| saves(*class)).map_or(0, |(_, reach)| reach)
    }

    /// u = 1 - X(n) / X(n + 1), of [`WHOLE`]: what the device loses by a slot that stays idle beside `in_service` others.
    pub fn idle_loss(&self, in_service: u32) -> u32 {
        if in_service == 0 {
            return WHOLE;
        }
        let (now, more) = (self.rate_at(in_service), self.rate_at(in_service.saturating_add(1)));
        if more <= now { 0 } else { (((more - now) << 16) / more) as u32 }
    }

    /// 32 X(n), along a line between the rates that are known.
    fn rate_at(&self, in_service: u32) -> u64 {
        let below = in_service.ilog2().min(5) as usize;
        let (low, high) = (u64::from(self.rate[below]), u64::from(self.rate[(below + 1).min(5)]));
        let (past, step) = (u64::from(in_service.min(32)) - (1 << below), 32 >> below);
        low * (32 - past * step) + high * past * step
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idle_slot_costs_what_the_rate_would_gain() {
        let prices = Prices { rate: [100, 150, 200, 200, 160, 400], ..Prices::default() };
        assert_eq!(prices.idle_loss(0), WHOLE);
        assert_eq!(prices.idle_loss(1), WHOLE / 3);
        assert_eq!(prices.idle_loss(2), WHOLE / 7); // 150 of 175
        assert_eq!(prices.idle_loss(5), 0);
        assert_eq!(prices.idle_loss(9), 0); // more in service are slower
        assert_eq!(prices.idle_loss(31), (u64::from(WHOLE) * 15 / 400) as u32);
        assert_eq!(prices.idle_loss(32), 0);
        assert_eq!(prices.idle_loss(u32::MAX), 0);
        assert_eq!(Prices::default().idle_loss(3), 0);
    }

    #[test]
    fn what_is_saved_ends_with_the_others() {
        let [a, b] = [3, 1].map(Span::from_millis);
        let prices = Prices { saving: [[a, b, Span::ZERO], [Span::ZERO; 3]], rate: [0; 6] };
        assert_eq!(
            [0, 1, 3, 4, 16].map(|others| prices.saving(Op::Read, others)),
            [a, b, b, Span::ZERO, Span::ZERO]
        );
        assert_eq!(prices.saving(Op::Write, 0), Span::ZERO);
        let before = |others, ahead| prices.saving_before(Op::Read, others, ahead);
        assert_eq!([before(0, 2), before(0, 9), before(2, 1), before(2, 2)], [a - b, a, Span::ZERO, b]);
        assert_eq!((prices.reach(), Prices::default().reach()), (4, 0));
        assert_eq!(Prices::of_jumps([Span::ZERO, a], [1; 6]).reach(), 1);
    }
}
