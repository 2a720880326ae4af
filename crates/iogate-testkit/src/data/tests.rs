//! Histories that can be, and forged ones that must be refused: one for each rule.

use super::*;

/// What one process does with one file, a call at a time.
#[derive(Default)]
struct Forged {
    events: Vec<Event>,
    last: u64,
}

impl Forged {
    fn call(&mut self, client: u64, handle: u64, op: Op) -> u64 {
        self.last += 1;
        self.events.push(Event::Call { call: self.last, client, handle, file: 1, op });
        self.last
    }

    fn returns(&mut self, call: u64, answer: Answer) {
        self.events.push(Event::Return { call, answer });
    }

    fn did(mut self, client: u64, handle: u64, op: Op, answer: Answer) -> Forged {
        let call = self.call(client, handle, op);
        self.returns(call, answer);
        self
    }

    /// Process 1 by its handle 1, all well.
    fn does(self, op: Op) -> Forged {
        self.did(1, 1, op, Answer::Done)
    }

    fn fails(self, op: Op, errno: i32) -> Forged {
        self.did(1, 1, op, Answer::Failed(errno))
    }

    fn writes(self, number: u64) -> Forged {
        self.does(Op::Write { first: 0, cells: 1, number })
    }

    fn appends(self, writer: u64, number: u64) -> Forged {
        self.did(writer, writer, Op::Append { writer, number }, Answer::Done)
    }

    /// Another process looks at cell 0.
    fn reads(self, cell: Cell) -> Forged {
        self.did(2, 2, Op::Read { first: 0, cells: 1 }, Answer::Cells(vec![cell]))
    }

    fn reads_all(self, records: &[(u64, u64)]) -> Forged {
        let record = |&(writer, number)| Piece::Record { file: 1, writer, number };
        self.did(2, 2, Op::ReadAll, Answer::Records(records.iter().map(record).collect()))
    }

    fn then(mut self, event: Event) -> Forged {
        self.events.push(event);
        self
    }

    fn lost(self) -> Forged {
        self.then(Event::Loss)
    }

    fn passes(self) {
        assert_eq!(check(&self.events), Ok(()));
    }

    /// Where files are striped.
    fn passes_in_parts(self) {
        assert_eq!(check_by(Checker::of_parts(), &self.events), Ok(()));
    }

    fn refused_in_parts(self, why: &str) {
        let error = check_by(Checker::of_parts(), &self.events).expect_err(why);
        assert!(error.contains(why), "{error}");
    }

    fn refused(self, why: &str) {
        let error = check(&self.events).expect_err(why);
        assert!(error.contains(why), "{error}");
    }
}

fn begin() -> Forged {
    Forged::default().does(Op::Open)
}

const fn is(number: u64) -> Cell {
    Cell::Number(1, number)
}

#[test]
fn what_was_acknowledged_is_read() {
    begin().reads(Cell::Nothing).writes(1).reads(is(1)).writes(2).reads(is(2)).passes();
    begin().writes(1).reads(Cell::Nothing).refused("known to have Some(1)");
    begin().writes(1).writes(2).reads(is(1)).refused("known to have Some(2)");
    begin().writes(1).reads(is(2)).refused("cell 0 has Some(2)");
    begin().writes(1).reads(Cell::Number(3, 1)).refused("not of its file");
    begin().writes(1).reads(Cell::Other).refused("not of its file");
}

#[test]
fn a_write_underway_is_read_or_not_but_does_not_go_again() {
    let underway = |seen: &[Cell]| {
        let mut forged = begin().writes(1);
        forged.call(1, 1, Op::Write { first: 0, cells: 1, number: 2 });
        let forged = seen.iter().fold(forged, |forged, &cell| forged.reads(cell));
        forged.then(Event::Killed { client: 1, tears: false })
    };
    underway(&[is(1), is(1), is(2), is(2)]).passes();
    underway(&[is(2), is(1)]).refused("known to have Some(2)");
    // Its successor writes, and then it comes after all.
    let next = Op::Write { first: 0, cells: 1, number: 3 };
    underway(&[]).did(3, 3, next, Answer::Done).reads(is(3)).passes();
    underway(&[]).did(3, 3, next, Answer::Done).reads(is(2)).refused("known to have Some(3)");
}

#[test]
fn what_was_synced_survives_a_loss() {
    begin().writes(1).lost().reads(Cell::Nothing).passes();
    begin().writes(1).does(Op::Sync).writes(2).lost().reads(is(1)).passes();
    begin().writes(1).does(Op::Sync).lost().reads(Cell::Nothing).refused("known to have Some(1)");
    begin().writes(1).reads(is(1)).reads(Cell::Nothing).refused("known to have Some(1)");
}

#[test]
fn what_was_underway_at_a_loss_may_be_lost_although_it_is_answered() {
    let answered = || {
        let mut forged = begin();
        let call = forged.call(1, 1, Op::Write { first: 0, cells: 1, number: 1 });
        let mut forged = forged.lost();
        forged.returns(call, Answer::Done);
        forged
    };
    answered().reads(Cell::Nothing).passes();
    answered().fails(Op::Sync, EIO).does(Op::Sync).reads(Cell::Nothing).passes();
    answered().does(Op::Sync).reads(Cell::Nothing).refused("known to have Some(1)");
}

/// A write that has failed may be there in part, as long as nothing is lost.
#[test]
fn what_a_read_saw_before_a_loss_may_be_lost_although_it_is_answered_after_it() {
    let failed = || begin().fails(Op::Write { first: 0, cells: 1, number: 1 }, 28);
    let seen = |forged: Forged, is_during: bool| {
        let mut forged = if is_during { forged } else { forged.lost() };
        let read = forged.call(2, 2, Op::Read { first: 0, cells: 1 });
        let mut forged = if is_during { forged.lost() } else { forged };
        forged.returns(read, Answer::Cells(vec![is(1)]));
        forged
    };
    seen(failed(), true).reads(Cell::Nothing).passes();
    seen(failed(), true).reads(is(1)).reads(Cell::Nothing).refused("known to have Some(1)");
    seen(failed(), false).reads(Cell::Nothing).refused("known to have Some(1)");
}

#[test]
fn a_sync_after_a_loss_tells_of_it_to_each_handle() {
    let lost = || begin().writes(1).lost();
    lost().does(Op::Sync).reads(Cell::Nothing).refused("known to have Some(1)");
    lost().fails(Op::Sync, EIO).does(Op::Sync).reads(Cell::Nothing).passes();
    lost().fails(Op::Close, EIO).does(Op::Open).does(Op::Sync).reads(Cell::Nothing).passes();
    let two = || begin().did(1, 3, Op::Open, Answer::Done).writes(1).lost().fails(Op::Sync, EIO);
    two().did(1, 3, Op::Sync, Answer::Failed(EIO)).reads(Cell::Nothing).passes();
    two().did(1, 3, Op::Sync, Answer::Done).reads(Cell::Nothing).refused("known to have Some(1)");
    // Who opens it then has lost nothing; who opened it before a loss has.
    lost().did(1, 3, Op::Open, Answer::Done).did(1, 3, Op::Sync, Answer::Done).reads(Cell::Nothing).passes();
    let reopened = begin().writes(1).does(Op::Close).did(1, 3, Op::Open, Answer::Done);
    let synced = reopened.did(1, 3, Op::Sync, Answer::Done).lost();
    synced.reads(Cell::Nothing).refused("known to have Some(1)");
    // Nor does another process answer for it.
    let other = begin().writes(1).lost().did(3, 4, Op::Open, Answer::Done);
    other.did(3, 4, Op::Sync, Answer::Done).reads(Cell::Nothing).passes();
}

#[test]
fn nothing_of_before_a_truncation_is_seen() {
    let cut = || begin().writes(1).does(Op::Truncate { cells: 0 });
    cut().reads(Cell::Nothing).writes(2).reads(is(2)).passes();
    cut().reads(is(1)).refused("cell 0 has Some(1)");
    cut().writes(2).reads(Cell::Nothing).refused("known to have Some(2)");
    begin().writes(1).does(Op::Truncate { cells: 1 }).reads(is(1)).passes();
}

#[test]
fn a_removed_file_stays_or_is_stale() {
    let read = Op::Read { first: 0, cells: 1 };
    begin().writes(1).did(2, 2, read, Answer::Failed(116)).passes();
    begin().writes(1).reads(Cell::Nothing).refused("known to have Some(1)");
}

#[test]
fn cells_are_taken_out_once() {
    let taken = |cells: Vec<Cell>| {
        let written = begin().writes(1).does(Op::Write { first: 1, cells: 1, number: 2 });
        let written = written.does(Op::Write { first: 2, cells: 1, number: 3 });
        let taken = written.does(Op::Collapse { first: 0, cells: 1 });
        taken.did(1, 1, Op::Read { first: 0, cells: 3 }, Answer::Cells(cells))
    };
    taken(vec![is(2), is(3), Cell::Nothing]).passes();
    taken(vec![is(3), Cell::Nothing, Cell::Nothing]).refused("cell 0 has Some(3)");
    begin().writes(1).fails(Op::Collapse { first: 0, cells: 1 }, 95).reads(is(1)).passes();
    begin().writes(1).fails(Op::Collapse { first: 0, cells: 1 }, EIO).reads(Cell::Nothing).passes();
}

#[test]
fn records_are_there_once_and_in_order() {
    let two = || begin().appends(1, 1).appends(2, 1).appends(1, 2);
    two().reads_all(&[(1, 1), (2, 1), (1, 2)]).passes();
    let mut at_once = begin().appends(2, 1);
    let calls = [1, 2].map(|number| at_once.call(number, number, Op::Append { writer: number, number: 2 }));
    calls.into_iter().for_each(|call| at_once.returns(call, Answer::Done));
    at_once.reads_all(&[(2, 1), (1, 2), (2, 2)]).reads_all(&[(2, 1), (2, 2), (1, 2)]).passes();
    two().reads_all(&[(1, 1), (1, 2)]).refused("record 1 of writer 2 was acknowledged");
    two().reads_all(&[(1, 2), (2, 1), (1, 1)]).refused("in front of it");
    two().lost().reads_all(&[(1, 2), (2, 1), (1, 1)]).refused("comes after");
    let placed = || begin().appends(1, 1).does(Op::Place { writer: 1, number: 2 }).appends(2, 1);
    placed().reads_all(&[(1, 1), (1, 2), (2, 1)]).passes();
    placed().reads_all(&[(1, 1), (2, 1), (1, 2)]).refused("in front of it");
    two().reads_all(&[(1, 1), (2, 1), (1, 2), (1, 2)]).refused("twice");
    two().reads_all(&[(1, 1), (2, 1), (1, 2), (1, 3)]).refused("nobody wrote");
    let other = vec![Piece::Record { file: 2, writer: 1, number: 1 }];
    begin().did(1, 1, Op::ReadAll, Answer::Records(other)).refused("of file 2");
    two().does(Op::Sync).lost().reads_all(&[(2, 1)]).refused("record 1 of writer 1 was acknowledged");
    two().does(Op::Sync).lost().reads_all(&[(1, 1), (1, 2)]).passes();
}

#[test]
fn no_bytes_are_there_that_nobody_wrote() {
    let zeros = || Answer::Records(vec![Piece::Other(100), Piece::Record { file: 1, writer: 1, number: 1 }]);
    let read = |forged: Forged| forged.did(2, 2, Op::ReadAll, zeros());
    read(begin().appends(1, 1)).refused("nobody wrote");
    read(begin().appends(1, 1).then(Event::Killed { client: 1, tears: false })).refused("nobody wrote");
    read(begin().appends(1, 1).then(Event::Killed { client: 1, tears: true })).passes();
    read(begin().appends(1, 1).does(Op::Sync).lost()).passes();
}

#[test]
fn a_part_of_a_record_is_seen_only_while_it_is_written() {
    let mut forged = begin();
    let call = forged.call(1, 1, Op::Append { writer: 1, number: 1 });
    let part = || Answer::Records(vec![Piece::Other(100)]);
    let mut forged = forged.did(2, 2, Op::ReadAll, part());
    let all = |checker: &mut Checker, forged: &Forged| {
        forged.events.iter().try_for_each(|event| checker.take(event))
    };
    assert!(all(&mut Checker::of_parts(), &forged).is_ok() && all(&mut Checker::new(), &forged).is_err());
    forged.returns(call, Answer::Done);
    forged.did(2, 2, Op::ReadAll, part()).refused_in_parts("nobody wrote");
}

#[test]
fn a_cut_that_has_failed_is_seen_in_part_until_something_comes_after_it() {
    let part = || Answer::Records(vec![Piece::Other(100), Piece::Record { file: 1, writer: 1, number: 2 }]);
    let sees = |forged: Forged| forged.did(2, 2, Op::ReadAll, part());
    let two = || begin().appends(1, 1).appends(1, 2);
    let failed = || two().fails(Op::Empty, 24);
    sees(two()).refused_in_parts("nobody wrote");
    sees(failed()).passes_in_parts();
    sees(failed()).refused("nobody wrote");
    sees(two().does(Op::Empty)).refused_in_parts("nobody wrote");
    failed().reads_all(&[(1, 2)]).reads_all(&[]).passes_in_parts();
    // Whoever appends or cuts next finishes it, if it was begun at all.
    let next = || failed().appends(1, 3);
    sees(next()).refused_in_parts("nobody wrote");
    sees(failed().does(Op::Empty)).refused_in_parts("nobody wrote");
    next().reads_all(&[(1, 3)]).passes_in_parts();
    next().reads_all(&[(1, 1), (1, 2), (1, 3)]).passes_in_parts();
    next().reads_all(&[(1, 2), (1, 3)]).refused_in_parts("record 1 of writer 1 was acknowledged");
    next().reads_all(&[]).refused_in_parts("record 3 of writer 1 was acknowledged");
    failed().appends(1, 3).fails(Op::Empty, 24).reads_all(&[]).passes_in_parts();
    // A record that was underway does not tell.
    let mut at_once = two();
    let append = at_once.call(3, 3, Op::Append { writer: 3, number: 1 });
    let mut at_once = at_once.fails(Op::Empty, 24);
    at_once.returns(append, Answer::Done);
    sees(at_once).passes_in_parts();
}

#[test]
fn an_append_follows_a_truncation() {
    let cut = || begin().appends(1, 1).does(Op::Empty);
    cut().reads_all(&[]).passes();
    cut().appends(1, 2).reads_all(&[(1, 2)]).passes();
    cut().reads_all(&[(1, 1)]).refused("was cut off");
    cut().appends(1, 2).reads_all(&[]).refused("acknowledged");
    let mut at_once = begin();
    let (append, empty) =
        (at_once.call(1, 1, Op::Append { writer: 1, number: 1 }), at_once.call(3, 3, Op::Empty));
    at_once.returns(append, Answer::Done);
    at_once.returns(empty, Answer::Done);
    at_once.reads_all(&[(1, 1)]).reads_all(&[]).passes();
}

#[test]
fn every_call_is_answered() {
    let mut forged = begin();
    forged.call(1, 1, Op::Sync);
    forged.refused("never answered");
    begin().then(Event::Return { call: 7, answer: Answer::Done }).refused("was not made");
    begin().did(1, 1, Op::Sync, Answer::Cells(Vec::new())).refused("nobody asked");
}
