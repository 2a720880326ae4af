//! The trace parser: what it takes, and how it refuses the rest.

use iogate_core::{FileId, Op, TargetId, Time};
use iogate_sim::trace::{LINE_BYTES_MAX, Row, TraceError, TraceReader};
use proptest::prelude::*;

const HEADER: &str = "time_us,app,client,file,op,offset,bytes";

fn read(text: &[u8]) -> Result<(Vec<Row>, Vec<String>), TraceError> {
    let mut trace = TraceReader::new(text)?;
    let (mut rows, mut names) = (Vec::new(), Vec::new());
    while let Some(row) = trace.next_row()? {
        names.push(trace.files().name(row.file).into_owned());
        rows.push(row);
    }
    Ok((rows, names))
}

#[test]
fn a_trace_in_every_dress() {
    let plain = "time_us,app,client,file,op,offset,bytes,target,issued_us\n\
                 0,1,11,7,r,0,4096,2,\n1500.25,2,12,data.bin,w,4096,1,,1499\n1500.250,2,12,data.bin,r,5,6,0,1.5\n";
    let (rows, names) = read(plain.as_bytes()).unwrap();
    assert_eq!(names, ["7", "data.bin", "data.bin"]);
    assert_eq!(rows[0].file, FileId(7));
    assert_eq!((rows[0].target, rows[0].issued), (Some(TargetId(2)), None));
    assert_eq!((rows[1].time, rows[1].op), (Time::from_nanos(1_500_250), Op::Write));
    assert_eq!((rows[1].target, rows[1].issued), (None, Some(Time::from_nanos(1_499_000))));
    assert_eq!(rows.iter().map(|row| row.number).collect::<Vec<_>>(), [1, 2, 3]);

    let crlf = plain.replace('\n', "\r\n");
    let bom = format!("\u{feff}{plain}\n\n");
    let unended = plain.trim_end();
    let quoted = plain.replace("data.bin", "\"data.bin\"");
    for text in [&crlf, &bom, unended, &quoted] {
        assert_eq!(read(text.as_bytes()).unwrap().0, rows, "{text:?}");
    }
    let reordered = "op,bytes,offset,file,client,app,time_us\nr,4096,0,7,11,1,0\n";
    assert_eq!(read(reordered.as_bytes()).unwrap().0[0], Row { target: None, ..rows[0] });
}

#[test]
fn names_of_files_come_back_as_written() {
    let names = ["7", "007", "x", "a,b", "say \"hi\"", "18446744073709551615", "+1", "ä"];
    let mut text = format!("{HEADER}\n");
    for name in names {
        text += &format!("0,0,0,\"{}\",r,0,1\n", name.replace('"', "\"\""));
    }
    let (rows, read_names) = read(text.as_bytes()).unwrap();
    assert_eq!(read_names, names);
    let ids: std::collections::BTreeSet<_> = rows.iter().map(|row| row.file).collect();
    assert_eq!(ids.len(), names.len(), "each name is a file of its own");
}

#[test]
fn refusals_name_line_column_and_what_was_expected() {
    let long = "x".repeat(LINE_BYTES_MAX + 1);
    let table: &[(&str, &str)] = &[
        ("", "line 1, column 1 (time_us): expected a header with the columns time_us, app"),
        ("0,1,1,1,r,0,8\n", "line 1, column 1 (header): expected the name of a column"),
        ("time_us,app,client,file,op,offset\n", "line 1, column 7 (header): expected the column bytes"),
        ("time_us,app,app\n", "line 1, column 3 (header): expected each column once, found 'app'"),
        ("H\n0,1,1,1,r,0\n", "line 2, column 7 (bytes): expected a value, found the end of the line"),
        (
            "H\n0,1,1,1,r,0,8,9\n",
            "line 2, column 8 (after the last): expected the end of the line, found '9'",
        ),
        (
            "H\n0,1,1,1,r,0,8\n\n-1,1,1,1,r,0,8\n",
            "line 4, column 1 (time_us): expected a time in microseconds",
        ),
        ("H\r\n0,1,1,1,r,0,8\r\n1.2345,1,1,1,r,0,8\r\n", "line 3, column 1 (time_us)"),
        (
            "H\r0,1,1,1,r,0,8\r",
            "line 1, column 8 (after the last): expected the end of the line, which is LF or CRLF",
        ),
        (
            "H\n0,1,1,1,r,0,8\r1,1,1,1,r,8,8\n",
            "line 2, column 8 (after the last): expected the end of the line, which is LF or CRLF, found '\\r1,1,1,1,r,8,8'",
        ),
        ("H\n1.,1,1,1,r,0,8\n", "found '1.'"),
        ("H\n1e3,1,1,1,r,0,8\n", "found '1e3'"),
        ("H\n18446744073709552,1,1,1,r,0,8\n", "line 2, column 1 (time_us)"),
        (
            "H\n0,x,1,1,r,0,8\n",
            "line 2, column 2 (app): expected a whole number, from 0 to 4294967295, found 'x'",
        ),
        ("H\n0,1,4294967296,1,r,0,8\n", "line 2, column 3 (client)"),
        ("H\n0,1,1,,r,0,8\n", "line 2, column 4 (file): expected a number or a name, found ''"),
        ("H\n0,1,1,1,read,0,8\n", "line 2, column 5 (op): expected r or w, found 'read'"),
        ("H\n0,1,1,1,R,0,8\n", "line 2, column 5 (op): expected r or w, found 'R'"),
        ("H\n0,1,1,1,r,-4,8\n", "line 2, column 6 (offset): expected a whole number of bytes"),
        ("H\n0,1,1,1,r,+4,8\n", "line 2, column 6 (offset)"),
        ("H\n0,1,1,1,r,0,0\n", "line 2, column 7 (bytes): expected a whole number of bytes, from 1"),
        ("H\n0,1,1,1,r,0,4294967296\n", "line 2, column 7 (bytes)"),
        (
            "H\n0,1,1,1,r,18446744073709551615,1\n",
            "line 2, column 7 (bytes): expected a range that ends below 2^64",
        ),
        ("H,target\n0,1,1,1,r,0,8,4096\n", "line 2, column 8 (target): expected a target, from 0 to 4095"),
        ("H,issued_us\n0,1,1,1,r,0,8,soon\n", "line 2, column 8 (issued_us)"),
        (
            "H,done_us\n5,1,1,1,r,0,8,4.5\n",
            "line 2, column 8 (done_us): expected a time not before the arrival, 5, found '4.5'",
        ),
        (
            "H\n9223372036854775.808,1,1,1,r,0,8\n",
            "line 2, column 1 (time_us): expected a time in microseconds, such as 1500 or 1500.25, with at most 3 decimals and below 2^63",
        ),
        ("H,lost\n5,1,1,1,r,0,8,few\n", "line 2, column 8 (lost): expected a whole number of requests"),
        ("H\n5,1,1,1,r,0,8\n4.5,1,1,1,r,0,8\n", "line 3, column 1 (time_us): expected a time not before 5"),
        ("H\n0,1,1,LONG,r,0,8\n", "line 2: expected at most 65536 bytes"),
    ];
    for (text, expected) in table {
        let text = text.replace('H', HEADER).replace("LONG", &long);
        let message = read(text.as_bytes()).unwrap_err().to_string();
        assert!(message.contains(expected), "{message}\nshould contain\n{expected}");
    }
    let message =
        read(b"time_us,app,client,file,op,offset,bytes\n0,1,1,\xff,r,0,8\n").unwrap_err().to_string();
    assert!(message.contains("line 2, column 4 (file): expected UTF-8 text"), "{message}");
}

#[test]
fn sorting_keeps_the_order_of_equal_times_and_the_numbers_of_rows() {
    let text = format!("{HEADER}\n5,1,1,1,r,0,8\n3,1,1,1,r,8,8\n5,1,1,1,r,16,8\n3,1,1,1,r,24,8\n");
    let mut trace = TraceReader::new(text.as_bytes()).unwrap();
    trace.sort().unwrap();
    let mut numbers = Vec::new();
    while let Some(row) = trace.next_row().unwrap() {
        numbers.push(row.number);
    }
    assert_eq!(numbers, [2, 4, 1, 3]);
}

/// Text near to a trace: pieces that mean something to the parser, in any order.
fn near_traces() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        6 => "[0-9]{1,4}".prop_map(String::into_bytes),
        6 => Just(b",".to_vec()),
        3 => Just(b"\n".to_vec()),
        2 => Just(b"0,1,1,a,r,0,8\n".to_vec()),
        1 => Just(b"\r\n".to_vec()),
        1 => Just(b"\"".to_vec()),
        1 => Just(b"r".to_vec()),
        1 => Just(b".5".to_vec()),
        1 => Just(b"18446744073709551615".to_vec()),
        1 => proptest::collection::vec(any::<u8>(), 1..4),
    ];
    (any::<bool>(), proptest::collection::vec(piece, 0..60)).prop_map(|(header, pieces)| {
        let head = if header { format!("{HEADER}\n").into_bytes() } else { Vec::new() };
        [head, pieces.concat()].concat()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2_000) })]

    #[test]
    fn any_input_is_read_or_refused(text in near_traces()) {
        match read(&text) {
            Ok((rows, _)) => {
                for row in &rows {
                    prop_assert!(row.bytes > 0 && row.offset.checked_add(row.bytes.into()).is_some());
                }
                prop_assert!(rows.windows(2).all(|pair| pair[0].time <= pair[1].time));
                prop_assert!(rows.iter().enumerate().all(|(i, row)| row.number == i as u64 + 1));
            }
            Err(error) => {
                let lines = text.iter().filter(|byte| **byte == b'\n').count() as u64 + 1;
                let message = error.to_string();
                let line: u64 = message[5..].split([',', ':']).next().unwrap().parse().unwrap();
                prop_assert!((1..=lines).contains(&line), "{} of {} lines", message, lines);
            }
        }
    }

    #[test]
    fn what_is_written_is_read(rows in proptest::collection::vec(
        (0u64..1 << 40, any::<u32>(), any::<u32>(), "[a-z0-9,\"]{1,8}", any::<bool>(), 0u64..1 << 62, 1u32..), 0..50
    )) {
        let mut rows = rows;
        rows.sort_by_key(|row| row.0);
        let mut text = format!("{HEADER}\n");
        for (ns, app, client, file, write, offset, bytes) in &rows {
            let op = if *write { 'w' } else { 'r' };
            let time = iogate_sim::trace::Micros(Time::from_nanos(*ns));
            text += &format!("{time},{app},{client},\"{}\",{op},{offset},{bytes}\n", file.replace('"', "\"\""));
        }
        let (read_rows, names) = read(text.as_bytes()).unwrap();
        prop_assert_eq!(read_rows.len(), rows.len());
        for ((row, name), want) in read_rows.iter().zip(&names).zip(&rows) {
            let got = (row.time.as_nanos(), row.app.0, row.client.0, name.clone(), row.op == Op::Write, row.offset, row.bytes);
            prop_assert_eq!(&got, want);
        }
    }
}
