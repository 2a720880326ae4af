//! What the library costs calls that are not its own: nanoseconds without it, with a prefix of forwarders, and with files that take turns.

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
    let library = library.to_str().ok_or("a path in UTF-8")?;
    let turns = format!("*.ckpt:{}/out/**", dir.path().display());
    let settings: [&[(&str, &str)]; 3] = [
        &[],
        &[("LD_PRELOAD", library), ("IOGATE_FORWARDERS", "unix:/nonexistent")],
        &[("LD_PRELOAD", library), ("IOGATE_COORD", "unix:/nonexistent"), ("IOGATE_FILES", &turns)],
    ];
    let (passes, rounds) = match std::env::args().any(|argument| argument == "--quick") {
        true => (1, "5"),
        false => (3, "100"),
    };
    let measure = |settings: &[(&str, &str)]| -> Result<Vec<(String, f64)>, Box<dyn std::error::Error>> {
        let mut command = Command::new(&program);
        command.arg(rounds).current_dir(&dir).envs(settings.iter().copied());
        let text = String::from_utf8(command.output()?.stdout)?;
        let parse = |line: &str| {
            let (name, time) = line.split_once(' ').ok_or("a name and a time")?;
            Ok((name.to_owned(), time.parse()?))
        };
        text.lines().map(parse).collect()
    };
    // In turn, as the machine may be busy with something else for a while.
    let mut best: BTreeMap<String, [f64; 3]> = BTreeMap::new();
    for _ in 0..passes {
        for (column, settings) in settings.into_iter().enumerate() {
            for (name, time) in measure(settings)? {
                let times = best.entry(name).or_insert([f64::INFINITY; 3]);
                times[column] = times[column].min(time);
            }
        }
    }
    if std::env::args().any(|argument| argument == "--json") {
        for (name, [without, with, turns]) in best {
            println!(
                r#"{{"call":"{name}","without_ns":{without:.1},"with_ns":{with:.1},"with_turns_ns":{turns:.1}}}"#
            );
        }
        return Ok(());
    }
    println!(
        "{:<14} {:>10} {:>10} {:>10} {:>10} {:>10}",
        "call", "without ns", "prefix ns", "more", "turns ns", "more"
    );
    for (name, [without, with, turns]) in best {
        let (more, more_turns) = (with - without, turns - without);
        println!("{name:<14} {without:>10.1} {with:>10.1} {more:>10.1} {turns:>10.1} {more_turns:>10.1}");
    }
    Ok(())
}
