//! Recorded events become a trace that is read back as it happened.

use iogate_core::recording::Event;
use iogate_core::{AppId, ClientId, FileId, Op, RequestId, Time};
use iogate_sim::TraceReader;
use iogate_sim::record::{Assembler, HEADER};
use iogate_sim::rng::Rng;

fn at(us: u64) -> Time {
    Time::from_nanos(us * 1_000)
}

fn arrived(id: u64, us: u64) -> Event {
    let (app, client, file) = (AppId(1), ClientId(2), FileId(u64::MAX - id));
    Event::Arrived {
        id: RequestId(id),
        time: at(us),
        app,
        client,
        file,
        op: Op::Write,
        offset: id << 20,
        bytes: 4096,
    }
}

fn completed(id: u64, us: u64) -> Event {
    Event::Completed { id: RequestId(id), time: at(us), began: None }
}

fn lines(assembler: &mut Assembler) -> String {
    let mut out = Vec::new();
    while let Some(line) = assembler.next_line() {
        line.write(&mut out).unwrap();
    }
    String::from_utf8(out).unwrap()
}

#[test]
fn lines_come_in_order_of_arrival_with_what_is_lost_behind_them() {
    let mut assembler = Assembler::default();
    for event in [completed(9, 1_000), arrived(1, 2_000), arrived(2, 2_010), completed(2, 2_020)] {
        assembler.push(event);
    }
    assert_eq!(lines(&mut assembler), "", "the first is not over");
    assembler.push(completed(1, 2_030));
    let file = u64::MAX - 1;
    assert_eq!(lines(&mut assembler), format!("0,1,2,{file},w,1048576,4096,30,\n"));
    assembler.push(Event::Lost { arrivals: 3 });
    assembler.push(completed(77, 2_040));
    // An id is used again.
    assembler.push(arrived(1, 2_005));
    let file = u64::MAX - 2;
    assert_eq!(lines(&mut assembler), format!("10,1,2,{file},w,2097152,4096,20,3\n"));
    let mut out = HEADER.as_bytes().to_vec();
    for line in assembler.finish() {
        line.write(&mut out).unwrap();
    }
    let text = String::from_utf8(out).unwrap();
    assert!(text.ends_with("\n10,1,2,18446744073709551614,w,1048576,4096,,\n"), "{text}");
    assert_eq!((assembler.arrivals(), assembler.lost(), assembler.unfinished()), (3, 3, 1));
}

#[test]
fn any_order_of_completions_is_read_back() {
    for seed in 0..50 {
        let mut rng = Rng::new(seed, 0);
        let (mut assembler, mut open, mut out) =
            (Assembler::default(), Vec::new(), HEADER.as_bytes().to_vec());
        let (mut now, mut arrivals, mut lost) = (5_000, 0, 0);
        for _ in 0..400 {
            now += rng.below(5);
            match rng.below(5) {
                0 | 1 => {
                    assembler.push(arrived(arrivals, now));
                    open.push(arrivals);
                    arrivals += 1;
                }
                2 | 3 if !open.is_empty() => {
                    let id = open.swap_remove(rng.below(open.len() as u64) as usize);
                    assembler.push(completed(id, now));
                }
                _ if arrivals > 0 && rng.below(4) == 0 => {
                    assembler.push(Event::Lost { arrivals: 1 });
                    lost += 1;
                }
                _ => {}
            }
            while let Some(line) = assembler.next_line() {
                line.write(&mut out).unwrap();
            }
        }
        for line in assembler.finish() {
            line.write(&mut out).unwrap();
        }
        let mut reader = TraceReader::new(&out[..]).unwrap();
        let (mut rows, mut without, mut missing) = (0, 0, 0);
        while let Some(row) = reader.next_row().unwrap() {
            assert_eq!(row.offset, rows << 20, "in order of arrival");
            assert!(row.done.is_none_or(|done| done >= row.time));
            without += usize::from(row.done.is_none());
            missing += row.lost;
            rows += 1;
        }
        assert_eq!((rows, without, missing), (arrivals, open.len(), lost), "seed {seed}");
    }
}
