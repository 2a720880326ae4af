//! `include/iogate_gate.h` says what the library has: each function with its types, each field where it is, each constant.

use std::mem::offset_of;
use std::path::Path;
use std::process::Command;

use iogate_gate::types::{
    CConfig, CDecision, CDispatch, CEngineConfig, CPart, CRequest, DISPATCH, HAS_TARGET, IDLE, NONBLOCK, NOW,
    QUICK, WAIT,
};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The header without comments, directives and white space.
fn header() -> String {
    let text = std::fs::read_to_string(root().join("include/iogate_gate.h")).unwrap();
    let mut code = String::new();
    for (index, piece) in text.split("/*").enumerate() {
        code.push_str(if index == 0 { piece } else { piece.split_once("*/").unwrap().1 });
    }
    let lines = code.lines().filter(|line| !line.starts_with('#'));
    lines.flat_map(str::chars).filter(|char| !char.is_whitespace()).collect()
}

/// A type of Rust's as C writes it, without spaces.
fn in_c(rust: &str) -> String {
    let known = [
        ("c_char", "char"),
        ("c_int", "int"),
        ("u64", "uint64_t"),
        ("usize", "size_t"),
        ("CGate", "iogate_gate"),
        ("CEngine", "iogate_engine"),
        ("CConfig", "iogate_gate_config"),
        ("CEngineConfig", "iogate_engine_config"),
        ("CRequest", "iogate_request"),
        ("CDecision", "iogate_decision"),
    ];
    if let Some(rest) = rust.strip_prefix("*const ") {
        return format!("const{}*", in_c(rest));
    }
    if let Some(rest) = rust.strip_prefix("*mut ") {
        return format!("{}*", in_c(rest));
    }
    known.iter().find(|(name, _)| *name == rust).unwrap_or_else(|| panic!("what is {rust} in C?")).1.into()
}

/// The functions of a source file, as C declares them, without spaces.
fn declared(source: &str) -> Vec<String> {
    let text = std::fs::read_to_string(root().join("src").join(source)).unwrap();
    let functions = text.split("#[unsafe(no_mangle)]").skip(1);
    functions
        .map(|rest| {
            let rest = rest.split_once("extern \"C\" fn ").unwrap().1;
            let (name, rest) = rest.split_once('(').unwrap();
            let (arguments, rest) = rest.split_once(')').unwrap();
            let returned = rest.split_once("->").unwrap().1.split_once('{').unwrap().0.trim();
            let arguments: Vec<String> = (arguments.split(',').map(str::trim))
                .filter(|argument| !argument.is_empty())
                .map(|argument| {
                    let (name, kind) = argument.split_once(": ").unwrap();
                    in_c(kind) + name
                })
                .collect();
            let arguments = if arguments.is_empty() { "void".into() } else { arguments.join(",") };
            format!("{}{name}({arguments});", in_c(returned))
        })
        .collect()
}

#[test]
fn functions_are_as_declared() {
    let header = header();
    let functions: Vec<String> =
        ["failed.rs", "c_gate.rs", "c_engine.rs"].into_iter().flat_map(declared).collect();
    assert!(functions.len() > 15);
    for function in &functions {
        assert!(header.contains(function), "{function} is not in the header: {header}");
    }
    let declared = header.matches("iogate_gate_").count() + header.matches("iogate_engine_").count();
    let kinds = header.matches("iogate_gate_config").count() + header.matches("iogate_engine_config").count();
    assert_eq!(declared - kinds, functions.len(), "the header has a function that the library has not");
}

/// `NAME.FIELD OFFSET` of each field and `NAME SIZE`, of Rust's and as expressions of C's. A field that is left out does not compile.
macro_rules! fields {
    ($rust:ident, $c:literal, [$($field:ident),*]) => {{
        #[allow(dead_code)]
        fn all(of: $rust) {
            let $rust { $($field: _),* } = of;
        }
        vec![
            $((format!("offsetof({}, {})", $c, stringify!($field)), offset_of!($rust, $field) as u64),)*
            (format!("sizeof({})", $c), size_of::<$rust>() as u64),
        ]
    }};
}

#[test]
fn structs_and_constants_are_as_declared() {
    let mut values = Vec::new();
    values.extend(fields!(
        CConfig,
        "iogate_gate_config",
        [size, scheduler, depth, queue_max, run_bytes_max, run_requests_max, targets, stripe_bytes]
    ));
    values.extend(fields!(
        CRequest,
        "iogate_request",
        [size, file, offset, bytes, op, app, client, target, flags, issued_ns, user, memory, done]
    ));
    values.extend(fields!(CPart, "iogate_part", [request, user, memory, offset, bytes, reserved]));
    values.extend(fields!(
        CDispatch,
        "iogate_dispatch",
        [id, file, offset, bytes, op, target, app, part_count, parts]
    ));
    values.extend(fields!(CDecision, "iogate_decision", [size, kind, reserved, until_ns, reason, dispatch]));
    values.extend(fields!(
        CEngineConfig,
        "iogate_engine_config",
        [size, gate, carry_out, start, user, flags, reserved]
    ));
    let constants = [
        ("IOGATE_NOW", NOW),
        ("IOGATE_READ", 0),
        ("IOGATE_WRITE", 1),
        ("IOGATE_HAS_TARGET", HAS_TARGET.into()),
        ("IOGATE_NONBLOCK", NONBLOCK.into()),
        ("IOGATE_IDLE", IDLE.into()),
        ("IOGATE_DISPATCH", DISPATCH.into()),
        ("IOGATE_WAIT", WAIT.into()),
        ("IOGATE_QUICK", QUICK.into()),
    ];
    values.extend(constants.map(|(name, value)| (name.to_string(), value)));
    let text = std::fs::read_to_string(root().join("include/iogate_gate.h")).unwrap();
    assert_eq!(text.matches("#define IOGATE_").count() - 1, constants.len(), "a constant is not compared");

    let mut program = String::from("#include <iogate_gate.h>\n");
    for (expression, value) in values {
        program += &format!("_Static_assert({expression} == {value}ull, \"{expression}\");\n");
    }
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("layout.c");
    std::fs::write(&source, program).unwrap();
    // As C++, too, which spells the assertion otherwise.
    for (compiler, flags) in
        [("cc", &["-std=c11"][..]), ("c++", &["-x", "c++", "-D_Static_assert=static_assert"])]
    {
        let mut command = Command::new(compiler);
        command
            .args(flags)
            .args(["-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-I"])
            .arg(root().join("include"));
        let output = command.arg(&source).output().unwrap();
        assert!(output.status.success(), "{compiler}: {}", String::from_utf8_lossy(&output.stderr));
    }
}
