//! What programs write, and what they make of what they read.

use iogate_testkit::data::{Cell, Piece};

/// Bytes of a cell.
pub(super) const CELL: usize = 512;
const CELL_MAGIC: u64 = 0x6365_6c6c_9e37_79b9;
const RECORD_MAGIC: u32 = 0x5ec0_4d1e;
/// Bytes of a record before what fills it.
const HEADER: usize = 24;

/// A cell with a number.
pub(super) fn cell(file: u64, number: u64) -> Vec<u8> {
    let words = [CELL_MAGIC, file, number, file.rotate_left(32) ^ number ^ CELL_MAGIC];
    words.iter().cycle().take(CELL / 8).flat_map(|word| word.to_le_bytes()).collect()
}

fn word(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).and_then(|word| word.try_into().ok()).map_or(0, u64::from_le_bytes)
}

/// What cells hold.
pub(super) fn cells(bytes: &[u8], count: usize) -> Vec<Cell> {
    let read = |bytes: &[u8]| {
        let (file, number) = (word(bytes, 8), word(bytes, 16));
        if bytes.iter().all(|&byte| byte == 0) {
            Cell::Nothing
        } else if bytes == cell(file, number) {
            Cell::Number(file, number)
        } else {
            Cell::Other
        }
    };
    let mut cells: Vec<Cell> = bytes.chunks(CELL).map(read).collect();
    cells.resize(count, Cell::Nothing);
    cells
}

fn sum(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5, |sum: u32, &byte| (sum ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

/// A record of so many bytes.
pub(super) fn record(file: u64, writer: u64, number: u64, bytes: usize) -> Vec<u8> {
    let mut record = Vec::with_capacity(bytes);
    for field in [RECORD_MAGIC, file as u32, writer as u32, number as u32, bytes as u32] {
        record.extend_from_slice(&field.to_le_bytes());
    }
    record.extend_from_slice(&[0; 4]);
    record.extend((record.len()..bytes.max(HEADER)).map(|at| (at as u64 * 31 + number * 7 + writer) as u8));
    let sum = sum(&record);
    record[20..24].copy_from_slice(&sum.to_le_bytes());
    record
}

/// The record at the beginning of bytes, and its length.
fn first(bytes: &[u8]) -> Option<(Piece, usize)> {
    let field = |at: usize| {
        bytes.get(at..at + 4).and_then(|field| field.try_into().ok()).map_or(0, u32::from_le_bytes)
    };
    let length = field(16) as usize;
    if field(0) != RECORD_MAGIC || length < HEADER || length > bytes.len() {
        return None;
    }
    let mut record = bytes[..length].to_vec();
    record[20..24].fill(0);
    let (file, writer, number) = (field(4).into(), field(8).into(), field(12).into());
    (sum(&record) == field(20)).then_some((Piece::Record { file, writer, number }, length))
}

/// What a file of records holds.
pub(super) fn pieces(mut bytes: &[u8]) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let mut others = 0;
    while !bytes.is_empty() {
        if let Some((record, length)) = first(bytes) {
            if others > 0 {
                pieces.push(Piece::Other(others));
                others = 0;
            }
            pieces.push(record);
            bytes = &bytes[length..];
        } else {
            others += 1;
            bytes = &bytes[1..];
        }
    }
    if others > 0 {
        pieces.push(Piece::Other(others));
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let written = [cell(7, 1), vec![0; CELL], cell(8, 2), vec![1; CELL]].concat();
        let expected = [Cell::Number(7, 1), Cell::Nothing, Cell::Number(8, 2), Cell::Other, Cell::Nothing];
        assert_eq!(cells(&written, 5), expected);
        let torn = record(9, 1, 2, 50);
        let written = [record(9, 1, 1, 100), vec![0; 3], record(9, 2, 1, 24), torn[..40].to_vec()].concat();
        let is = |writer, number| Piece::Record { file: 9, writer, number };
        assert_eq!(pieces(&written), [is(1, 1), Piece::Other(3), is(2, 1), Piece::Other(40)]);
    }
}
