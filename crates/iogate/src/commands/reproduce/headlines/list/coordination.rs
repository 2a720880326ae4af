//! The headlines of server coordination.

use super::super::short::{cause, claim, control, headline};
use super::super::{Headline, Shows};

pub(super) const ALL: &[Headline] = &[
    headline(
        "coordination",
        "abstract",
        "applications complete earlier, on average",
        &[
            claim("applications added, disk", "figure 6", "disk: shorter than fifo by"),
            claim("applications added, flash", "figure 6", "flash: shorter than fifo by"),
            claim("most servers, disk", "figure 7", "disk, reads, servers: 64; shorter than fifo by"),
            claim("most servers, flash", "figure 7", "flash, reads, servers: 16; shorter than fifo by"),
        ],
        &[
            cause(
                "CFQ and a page cache below, with the most servers",
                Shows::Agreement,
                &[
                    control(
                        "coordination",
                        SERVERS_BELOW,
                        "slices*with the most servers, coordination is shorter by",
                    ),
                    control(
                        "coordination",
                        SERVERS_BELOW,
                        "cache*with the most servers, coordination is shorter by",
                    ),
                ],
            )
            .without(&[control(
                "coordination",
                SERVERS_BELOW,
                "nothing*with the most servers, coordination is shorter by",
            )]),
            cause(
                "on flash, more calls of a process at once: two applications leave servers without work",
                Shows::Agreement,
                &[
                    control("coordination", SEVERAL, "*process: 4; shorter than fifo by"),
                    control("coordination", SEVERAL, "*process: 16; shorter than fifo by"),
                ],
            )
            .without(&[control("coordination", SEVERAL, "*process: 1; shorter than fifo by")]),
        ],
    ),
    headline(
        "coordination",
        "abstract and conclusion",
        "bandwidth is comparable or higher",
        &[
            claim("disk", "figure 8", "disk: bandwidth higher than fifo by"),
            claim("flash, never lower", "figure 8", "flash: bandwidth higher than fifo by 0 or more"),
        ],
        &[
            cause(
                "longer runs: ours on flash are over within the first window",
                Shows::Agreement,
                &[control("coordination", "figure 8, longer runs", "flash: bandwidth higher than fifo *")],
            ),
            cause(
                "noise of the network, of which the paper says nothing: an application that is served alone waits for its latest message",
                Shows::Agreement,
                &[control("coordination", "figure 8, less noise", "*: bandwidth higher than fifo *")],
            )
            .without(&[control("coordination", "figure 8", "flash: bandwidth higher than fifo *")]),
        ],
    ),
    headline(
        "coordination",
        "abstract",
        "it scales: as servers are added, times stay with it, and grow without",
        &[
            claim(
                "disk, stay",
                "figure 7",
                "disk, reads: with coordination, the completion time stays from 2 servers on",
            ),
            claim(
                "disk, grow",
                "figure 7",
                "disk, reads: without, fifo, the completion time grows from 2 servers on",
            ),
            claim(
                "flash, stay",
                "figure 7",
                "flash, reads: with coordination, the completion time stays from 2 servers on",
            ),
            claim(
                "flash, grow",
                "figure 7",
                "flash, reads: without, fifo, the completion time grows from 2 servers on",
            ),
        ],
        &[cause(
            "CFQ and a page cache below, which favour another application on each server",
            Shows::Agreement,
            &[
                control(
                    "coordination",
                    SERVERS_BELOW,
                    "slices*without it the completion time grows with servers",
                ),
                control(
                    "coordination",
                    SERVERS_BELOW,
                    "cache*without it the completion time grows with servers",
                ),
                control("coordination", SERVERS_BELOW, "slices*coordination gains more *"),
                control("coordination", SERVERS_BELOW, "cache*coordination gains more *"),
            ],
        )
        .without(&[
            control(
                "coordination",
                SERVERS_BELOW,
                "nothing*without it the completion time grows with servers",
            ),
            control("coordination", SERVERS_BELOW, "nothing*coordination gains more *"),
        ])],
    ),
    headline(
        "coordination",
        "conclusion",
        "one order on all servers is worth what the analysis says",
        &[claim("", "formulas (1) to (3)", "the interval of the mean *")],
        &[],
    ),
];

const SEVERAL: &str = "figure 6, several calls at once";
const SERVERS_BELOW: &str = "figure 7, elevator and cache below";
