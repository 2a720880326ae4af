//! The headlines of checkpoint coordination.

use super::super::short::{cause, claim, control, headline};
use super::super::{Control, Headline, Shows};

pub(super) const ALL: &[Headline] = &[
    headline(
        "checkpoint",
        "abstract and chapter 6",
        "ten jobs spend less time on I/O, with backoff",
        &[claim("", "figure 4.8", "ten jobs, backoff: lower by")],
        &[
            cause(
                "caches, allocation and CFQ below",
                Shows::Agreement,
                &[
                    control("checkpoint", TEN_BELOW, "ten jobs, blocks*: backoff lower by"),
                    control("checkpoint", TEN_BELOW, "ten jobs, caches*: backoff lower by"),
                ],
            )
            .without(&[control("checkpoint", TEN_BELOW, "ten jobs, nothing: backoff lower by")]),
            cause(
                "a server that loses by overlap what the thesis's loses with two jobs",
                Shows::Sign,
                &[control("checkpoint", TEN_RATES, "ten jobs: backoff lower by")],
            ),
            cause(
                "other parameters of backing off",
                Shows::Sign,
                &[control("checkpoint", "how to back off", "ten jobs, *: lower by")],
            ),
            cause(
                "larger checkpoints",
                Shows::Agreement,
                &[control("checkpoint", OTHER_READING, "ten jobs, backoff: lower by")],
            ),
        ],
    ),
    headline(
        "checkpoint",
        "abstract and chapter 6",
        "ten jobs spend less time on I/O, with locking",
        &[claim("", "figure 4.8", "ten jobs, lock: lower by")],
        &[
            cause(
                "caches, allocation and CFQ below",
                Shows::Agreement,
                &[
                    control("checkpoint", TEN_BELOW, "ten jobs, blocks*: lock lower by"),
                    control("checkpoint", TEN_BELOW, "ten jobs, caches*: lock lower by"),
                ],
            )
            .without(&[control("checkpoint", TEN_BELOW, "ten jobs, nothing: lock lower by")]),
            cause(
                "a server that loses by overlap what the thesis's loses with two jobs",
                Shows::Agreement,
                &[control("checkpoint", TEN_RATES, "ten jobs: lock lower by")],
            ),
            cause(
                "a server that sorts",
                Shows::Agreement,
                &[control("checkpoint", "figure 4.8", "ten jobs, lock, over a server that sorts: lower by")],
            ),
            cause(
                "larger checkpoints",
                Shows::Agreement,
                &[control("checkpoint", OTHER_READING, "ten jobs, lock*: lower by")],
            ),
            cause(
                "one value that the thesis does not tell",
                Shows::OneCase,
                &[control("sensitivity", "checkpoint", "at every end: near the paper's")],
            )
            .tried("two jobs"),
        ],
    ),
    headline(
        "checkpoint",
        "abstract and chapter 6",
        "the makespan of ten jobs is shorter with both",
        &[
            claim("backoff", "figure 4.7", "backoff: ten jobs have a shorter makespan than without"),
            claim("lock", "figure 4.7", "lock: ten jobs have a shorter makespan than without"),
        ],
        &[
            cause(
                "a server that loses by overlap what the thesis's loses with two jobs",
                Shows::Agreement,
                &[control("checkpoint", "figure 4.7, two rates", "*")],
            )
            .without(&[control("checkpoint", MAKESPAN_BELOW, "nothing*")]),
            cause(
                "other parameters of backing off",
                Shows::Agreement,
                &[control("checkpoint", "how to back off", "ten jobs, *: a shorter makespan than without")],
            ),
            cause(
                "caches, allocation and CFQ below",
                Shows::Agreement,
                &[
                    control("checkpoint", MAKESPAN_BELOW, "blocks*"),
                    control("checkpoint", MAKESPAN_BELOW, "caches*"),
                ],
            )
            .without(&[control("checkpoint", MAKESPAN_BELOW, "nothing*")]),
            cause(
                "larger checkpoints",
                Shows::Agreement,
                &[control("checkpoint", "figure 4.7, the other reading", "*")],
            )
            .without(&[control("checkpoint", MAKESPAN_BELOW, "nothing*")]),
        ],
    ),
    headline(
        "checkpoint",
        "abstract and chapter 6",
        "checkpoint times vary least with locking",
        &[
            claim("2 jobs", "figure 4.9", "2 jobs: checkpoint times vary least with lock"),
            claim("6 jobs", "figure 4.9", "6 jobs: checkpoint times vary least with lock"),
            claim("10 jobs", "figure 4.9", "10 jobs: checkpoint times vary least with lock"),
        ],
        &[],
    ),
    headline(
        "checkpoint",
        "abstract and chapter 6",
        "checkpoint times vary most with backoff",
        &[
            claim("2 jobs", "figure 4.9", "2 jobs: they vary most with backoff"),
            claim("6 jobs", "figure 4.9", "6 jobs: they vary most with backoff"),
            claim("10 jobs", "figure 4.9", "10 jobs: they vary most with backoff"),
        ],
        &[
            cause(
                "longer sleeps",
                Shows::Agreement,
                &[control("checkpoint", "figure 4.9, longer sleeps", "*: they vary most with backoff")],
            )
            .without(MOST),
            cause(
                "larger checkpoints",
                Shows::Agreement,
                &[control("checkpoint", "figure 4.9, the other reading", "*: they vary most with backoff")],
            )
            .without(MOST),
            cause(
                "a checkpoint that begins with its writes",
                Shows::Agreement,
                &[control(
                    "checkpoint",
                    "figure 4.9, from the start of the writes on",
                    "*: they vary most with backoff",
                )],
            )
            .without(&[control("checkpoint", "figure 4.9", "*: they vary most with backoff")]),
        ],
    ),
];

/// With the numbers of jobs that its controls have.
const MOST: &[Control] = &[
    control("checkpoint", "figure 4.9", "2 jobs: they vary most with backoff"),
    control("checkpoint", "figure 4.9", "10 jobs: they vary most with backoff"),
];
const TEN_RATES: &str = "figure 4.8, two rates";
const MAKESPAN_BELOW: &str = "figure 4.7, what lies below";
const TEN_BELOW: &str = "figure 4.8, what lies below";
const OTHER_READING: &str = "figure 4.8, the other reading";
