//! What belongs to each kind of addition: the files that are made, the lines that are put into others, and the test that then fails.
//!
//! `@name@` is the name as people write it (`two-queues`), `@module@` that of the file (`two_queues`), `@Type@` that of the type
//! (`TwoQueues`). A line is put before or behind a text that its file has once; if the file has changed so that it is not there, nothing
//! is made, and the text is to be mended here.

/// A kind of addition.
pub(super) struct Kind {
    pub(super) name: &'static str,
    /// New files: path and content.
    pub(super) files: &'static [(&'static str, &'static str)],
    pub(super) lines: &'static [Line],
    /// The test that fails until the addition does what it is to do, as arguments of cargo.
    pub(super) test: &'static str,
    /// What is to be done then.
    pub(super) then: &'static str,
}

/// A change of a file that there is.
pub(super) enum Line {
    Before {
        path: &'static str,
        text: &'static str,
        new: &'static str,
    },
    Behind {
        path: &'static str,
        text: &'static str,
        new: &'static str,
    },
    AtEnd {
        path: &'static str,
        new: &'static str,
    },
    /// A whole number between two texts becomes the next one.
    Count {
        path: &'static str,
        before: &'static str,
        behind: &'static str,
    },
}

use Line::{AtEnd, Before, Behind, Count};

const CONFIG: &str = "crates/iogate-core/src/sched/config.rs";
const SCHED: &str = "crates/iogate-core/src/sched/mod.rs";
const REFERENCE: &str = "crates/iogate-testkit/src/reference/mod.rs";
const STORE: &str = "crates/iogate-engine/src/store/mod.rs";
const CONFORMANCE: &str = "crates/iogate-engine/tests/conformance.rs";
const DEVICE: &str = "crates/iogate-core/src/device/mod.rs";
const PRESET: &str = "crates/iogate-core/src/device/preset.rs";
const SCENARIO: &str = "crates/iogate-sim/src/scenario/mod.rs";
const PATTERNS: &str = "crates/iogate-sim/tests/workload/patterns.rs";
const SWARM: &str = "crates/iogate-sim/tests/swarm.rs";

pub(super) const KINDS: [Kind; 4] = [
    Kind {
        name: "scheduler",
        files: &[
            ("crates/iogate-core/src/sched/@module@.rs", include_str!("templates/scheduler.txt")),
            ("crates/iogate-testkit/src/reference/@module@.rs", include_str!("templates/model.txt")),
        ],
        lines: &[
            Behind { path: SCHED, text: "pub mod twins;\n", new: "pub mod @module@;\n" },
            Before {
                path: SCHED,
                text: "//!\n//! A driver can bring one",
                new: "//! | [`@module@`] | O(1) | O(1) | one request | TO DO |\n",
            },
            Behind {
                path: SCHED,
                text: "SchedulerKind::Twins => Box::new(twins::Twins::new(self)),\n",
                new: "            SchedulerKind::@Type@ => Box::new(@module@::@Type@::new(self)),\n",
            },
            Behind { path: CONFIG, text: "    ServerWindow,\n    Twins,\n", new: "    @Type@,\n" },
            Count { path: CONFIG, before: "ALL: [SchedulerKind; ", behind: "]" },
            Behind {
                path: CONFIG,
                text: "        SchedulerKind::Twins,\n",
                new: "        SchedulerKind::@Type@,\n",
            },
            Behind {
                path: CONFIG,
                text: "SchedulerKind::Twins => \"twins\",\n",
                new: "            SchedulerKind::@Type@ => \"@name@\",\n",
            },
            Behind {
                path: CONFIG,
                text: "SchedulerKind::Twins => \"one target for a window, then the next\",\n",
                new: "            SchedulerKind::@Type@ => \"TO DO: the order in which it serves\",\n",
            },
            Behind {
                path: CONFIG,
                text: "            SchedulerKind::Fifo => &[],\n",
                new: "            // TO DO: parameters, of param.rs; those of equal meaning have one name in all schedulers.\n            SchedulerKind::@Type@ => &[],\n",
            },
            Behind { path: REFERENCE, text: "mod twins;\n", new: "mod @module@;\n" },
            Behind {
                path: REFERENCE,
                text: "SchedulerKind::Twins => Box::new(twins::Twins::new(config)),\n",
                new: "        SchedulerKind::@Type@ => Box::new(@module@::@Type@::new(config)),\n",
            },
            AtEnd {
                path: "crates/iogate-testkit/tests/agrees_with_reference.rs",
                new: "\n#[test]\nfn @module@() {\n    agrees(SchedulerKind::@Type@);\n}\n",
            },
            Behind { path: "tests/system/lib.sh", text: "server-window twins", new: " @name@" },
        ],
        test: "-p iogate-testkit --test agrees_with_reference @module@",
        then: "the rule in the naive model, then the same fast; parameters in crates/iogate-core/src/sched/param.rs",
    },
    Kind {
        name: "store",
        files: &[("crates/iogate-engine/src/store/@module@.rs", include_str!("templates/store.txt"))],
        lines: &[
            Behind { path: STORE, text: "mod vectored;\n", new: "mod @module@;\n" },
            Before {
                path: STORE,
                text: "\n/// An open file of a store. Cheap",
                new: "pub use @module@::@Type@Store;\n",
            },
            Before { path: CONFORMANCE, text: "Backend, BatchedStore,", new: "@Type@Store, " },
            Before {
                path: CONFORMANCE,
                text: "    stores\n}\n",
                new: "    stores.push((\"@name@\", vec![], Arc::new(@Type@Store::new())));\n",
            },
        ],
        test: "-p iogate-engine --test conformance random_vectored_operations_match_the_model",
        then: "what the store does; a flag or a key that chooses it, in crates/iogate/src/commands/serve/config.rs",
    },
    Kind {
        name: "device",
        files: &[("crates/iogate-core/src/device/@module@.rs", include_str!("templates/device.txt"))],
        lines: &[
            Behind { path: DEVICE, text: "mod write_cache;\n", new: "mod @module@;\n" },
            Behind {
                path: DEVICE,
                text: "pub use unit::Unit;\n",
                new: "pub use @module@::{@Type@, @Type@Config};\n",
            },
            Before { path: DEVICE, text: "//! | `parameters` |", new: "//! | `@module@` | TO DO |\n" },
            Count { path: PRESET, before: "PRESETS: [Preset; ", behind: "]" },
            Before {
                path: PRESET,
                text: "    Preset {\n        name: \"memory\",",
                new: "    Preset {\n        name: \"@name@\",\n        summary: \"TO DO: what it is, how large and how fast\",\n        kind: Kind::Other(|| {\n            let transfer = Span::from_micros(1_000);\n            Box::new(super::@Type@::new(super::@Type@Config { capacity: 1 << 40, transfer }))\n        }),\n    },\n",
            },
            AtEnd {
                path: "crates/iogate-core/tests/devices.rs",
                new: "\n#[test]\nfn @module@_is_as_fast_as_its_sheet_says() {\n    let mut device = parse(\"@name@\").unwrap();\n    let seconds = run(&mut *device, sequential(Op::Read, 0, MIB, 100));\n    let sheet: f64 = todo!(\"what the data sheet gives for 100 MiB, where @name@ takes {seconds} s\");\n    #[allow(unreachable_code, reason = \"until the sheet is asked\")]\n    assert_close(\"@name@\", seconds, sheet, 0.05);\n}\n",
            },
        ],
        test: "-p iogate-core --test devices @module@",
        then: "the model, its numbers with their sources in crates/iogate-core/src/device/preset.rs, a row of docs/devices.md",
    },
    Kind {
        name: "workload",
        files: &[],
        lines: &[
            Before {
                path: SCENARIO,
                text: "    /// Calls at random multiples of their length in a file.\n",
                new: "    /// TO DO: which bytes. Until then those of `Strided`.\n    @Type@ {\n        /// Bytes of a process in an iteration.\n        bytes: u64,\n        /// Bytes of a call.\n        request: u32,\n    },\n",
            },
            Before {
                path: "crates/iogate-sim/src/scenario/read/app.rs",
                text: "        \"random\" => {\n            let (sharing",
                new: "        \"@name@\" => Pattern::@Type@ { bytes: amount(), request: table.needed_small(\"request\") },\n",
            },
            Behind {
                path: "crates/iogate-sim/src/scenario/schema/keys.rs",
                text: "const PATTERNS: &[&str] = &[\"contiguous\", \"strided\", ",
                new: "\"@name@\", ",
            },
            Behind {
                path: "crates/iogate-sim/src/workload/division.rs",
                text: "            Pattern::Strided { bytes, request }",
                new: " | Pattern::@Type@ { bytes, request }",
            },
            Behind {
                path: "crates/iogate-sim/src/workload/accesses.rs",
                text: "        Pattern::Strided { .. }",
                new: " | Pattern::@Type@ { .. }",
            },
            Behind {
                path: "crates/iogate-sim/src/workload/files.rs",
                text: "        Pattern::Strided { .. }",
                new: " | Pattern::@Type@ { .. }",
            },
            Behind {
                path: "crates/iogate-sim/src/workload/collective.rs",
                text: "            Pattern::Strided { .. }",
                new: " | Pattern::@Type@ { .. }",
            },
            Behind {
                path: SWARM,
                text: "        | Pattern::Strided { bytes, .. }",
                new: " | Pattern::@Type@ { bytes, .. }",
            },
            Before {
                path: PATTERNS,
                text: "        (1..9u32, 0..200u64, 1..20u32, 1..6u32)\n",
                new: "        (1..9u32, 0..200u64, 1..50u32).prop_map(|(p, bytes, request)| (p, Pattern::@Type@ { bytes, request })),\n",
            },
            Before {
                path: PATTERNS,
                text: "        Pattern::Noncontiguous { bytes, piece, .. } => by_turns",
                new: "        Pattern::@Type@ { .. } => todo!(\"whose the bytes of @name@ are, piece by piece\"),\n",
            },
            Before {
                path: "docs/scenarios.md",
                text: "| `random` | calls at random multiples",
                new: "| `@name@` | TO DO: which bytes | `bytes`, `request` |\n",
            },
            Behind { path: "docs/scenarios.md", text: "one of: contiguous, strided, ", new: "@name@, " },
        ],
        test: "-p iogate-sim --test workload every_byte_of_every_iteration_has_its_process",
        then: "its ranges in crates/iogate-sim/src/workload/accesses.rs, its keys in crates/iogate-sim/src/scenario/schema/keys.rs",
    },
];
