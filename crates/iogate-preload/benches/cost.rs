//! What the library costs calls that are not its own: nanoseconds without it and with it.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/cost.c");
    let dir = tempfile::tempdir()?;
    let program = dir.path().join("cost");
    let compiled = Command::new("cc").args(["-O2", "-w", "-o"]).arg(&program).arg(source).status()?;
    if !compiled.success() {
        return Err("cost.c does not compile".into());
    }
    let executable = std::env::current_exe()?;
    let library = executable.parent().ok_or("a program is in a folder")?.join("libiogate_preload.so");
    let measure = |preload: &str| -> Result<Vec<(String, f64)>, Box<dyn std::error::Error>> {
        let mut command = Command::new(&program);
        command.env("LD_PRELOAD", preload).env("IOGATE_FORWARDERS", "unix:/nonexistent");
        let text = String::from_utf8(command.output()?.stdout)?;
        let parse = |line: &str| {
            let (name, time) = line.split_once(' ').ok_or("a name and a time")?;
            Ok((name.to_owned(), time.parse()?))
        };
        text.lines().map(parse).collect()
    };
    let library = library.to_str().ok_or("a path in UTF-8")?;
    // In turn, as the machine may be busy with something else for a while.
    let mut best: BTreeMap<String, [f64; 2]> = BTreeMap::new();
    for _ in 0..3 {
        for (column, preload) in ["", library].into_iter().enumerate() {
            for (name, time) in measure(preload)? {
                let times = best.entry(name).or_insert([f64::INFINITY; 2]);
                times[column] = times[column].min(time);
            }
        }
    }
    if std::env::args().any(|argument| argument == "--json") {
        for (name, [without, with]) in best {
            println!(r#"{{"call":"{name}","without_ns":{without:.1},"with_ns":{with:.1}}}"#);
        }
        return Ok(());
    }
    println!("{:<12} {:>10} {:>10} {:>10}", "call", "without ns", "with ns", "more ns");
    for (name, [without, with]) in best {
        println!("{name:<12} {without:>10.1} {with:>10.1} {:>10.1}", with - without);
    }
    Ok(())
}
