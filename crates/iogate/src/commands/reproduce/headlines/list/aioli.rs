//! The headlines of aIOLi.

use super::super::short::{cause, claim, control, headline};
use super::super::{Headline, Shows};

pub(super) const ALL: &[Headline] = &[
    headline(
        "aioli",
        "abstract",
        "two applications that read at once are faster, with plain calls",
        &[claim("", "abstract", "gain of two IORs, plain calls")],
        &[
            cause(
                "the scheduler sees only what the server's threads hold",
                Shows::Agreement,
                &[control("aioli", THREADS, "* threads: gain")],
            ),
            cause(
                "a mount with few slots, which lets only a part of a large call in at once",
                Shows::Agreement,
                &[control("aioli", SLOTS, "few slots, aioli sees everything, calls of *")],
            )
            .without(&[control("aioli", SLOTS, "slots enough, *")]),
        ],
    ),
    headline(
        "aioli",
        "abstract",
        "the same with collective calls",
        &[claim("", "abstract", "gain of two IORs, collective calls")],
        &[cause(
            "the plain server's page cache, which reads ahead for those who gather small pieces",
            Shows::Agreement,
            &[control("aioli", "figure 7, page cache below", "page cache*")],
        )
        .without(&[control("aioli", "figure 7, page cache below", "nothing*")])],
    ),
    headline(
        "aioli",
        "conclusion",
        "many different applications at once are faster",
        &[claim("", "table 2, POSIX", "all of them; gain")],
        &[cause(
            "the plain server's page cache, which answers writes from memory",
            Shows::Agreement,
            &[control("aioli", "table 2, page cache below", "*: all of them; gain")],
        )],
    ),
    headline(
        "aioli",
        "conclusion",
        "joining brings a parallel application the server's throughput",
        &[
            claim("than plain calls, reads", "figure 5", "reads: aioli is faster than plain calls"),
            claim("than collective calls, reads", "figure 5", "reads: aioli is faster than collective calls"),
            claim("than one reader", "figure 5", "other reads: aioli passes one reader"),
            claim("against one writer", "figure 5", "writes: aioli against one writer"),
        ],
        &[
            cause(
                "the server's page cache, which reads ahead and answers writes from memory",
                Shows::Agreement,
                &[control("aioli", "figure 5, page cache below", "page cache*")],
            )
            .without(&[control("aioli", "figure 5, page cache below", "nothing*")]),
            cause(
                "the one reader that it is compared with has one transfer at a time",
                Shows::Agreement,
                &[control("aioli", "figure 5, one transfer at a time", "*: aioli passes one reader")],
            )
            .without(&[control("aioli", "figure 5, page cache below", "nothing below, reads*")]),
        ],
    ),
    headline(
        "aioli",
        "conclusion",
        "fairness between applications: both end at nearly the same time",
        &[claim("", "figure 7", "between the ends of the two at most *")],
        &[cause(
            "the scheduler sees only what the server's threads hold",
            Shows::Agreement,
            &[control("aioli", THREADS, "* threads: between the ends at most *")],
        )],
    ),
    headline(
        "aioli",
        "conclusion",
        "a small program beside a large one does not lose",
        &[claim("", "figure 6, left", "the small program gains")],
        &[],
    ),
];

const THREADS: &str = "figure 7, threads of the server";
const SLOTS: &str = "figure 7, few slots of a mount";
