//! The log of a replay: one line a dispatch, in dispatch order.

use std::io::{self, Write};

use crate::replay::Dispatched;
use crate::trace::Micros;

/// The log's first line.
pub const HEADER: &str = "start_us,end_us,file,op,offset,bytes,requests,ids";

/// Writes a dispatch of the file called `name`, with the line's end.
pub fn write_line(out: &mut impl Write, dispatched: &Dispatched, name: &str) -> io::Result<()> {
    let Dispatched { start, end, op, offset, bytes, ids, .. } = dispatched;
    write!(out, "{},{},", Micros(*start), Micros(*end))?;
    if name.contains(['"', ',', '\n', '\r']) {
        write!(out, "\"{}\"", name.replace('"', "\"\""))?;
    } else {
        out.write_all(name.as_bytes())?;
    }
    write!(out, ",{},{offset},{bytes},{},", op.letter(), ids.len())?;
    for (index, id) in ids.iter().enumerate() {
        write!(out, "{}{id}", if index == 0 { "" } else { "+" })?;
    }
    out.write_all(b"\n")
}
