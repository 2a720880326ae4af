//! The headlines of TWINS.

use super::super::short::{cause, claim, control, headline};
use super::super::{Headline, Shows};

pub(super) const ALL: &[Headline] = &[
    headline(
        "twins",
        "abstract and chapter 6",
        "the other schedulers change little for reads",
        &[claim("", "figures 3.6 and 3.7", "reads: HBRR, SJF and MLF take as long as FIFO, within *")],
        &[cause(
            "a forwarder passes requests on before they can be sorted",
            Shows::Agreement,
            &[control("twins", "section 4.2.4, reads", "*: with as many dispatches as calls*")],
        )],
    ),
    headline(
        "twins",
        "abstract and chapter 6",
        "the other schedulers gain little for writes",
        &[claim("", "figures 3.6 and 3.7", "writes: none of them gains *")],
        &[cause(
            "a forwarder passes requests on before they can be sorted",
            Shows::Agreement,
            &[control("twins", "section 4.2.4, writes", "*: with as many dispatches as calls*")],
        )],
    ),
    headline(
        "twins",
        "chapter 6",
        "TO, SJF and MLF make larger requests",
        &[
            claim("TO", SIZES, "TO: sizes that leave the forwarders *"),
            claim("SJF", SIZES, "SJF: sizes that leave the forwarders *"),
            claim("MLF", SIZES, "MLF: sizes that leave the forwarders *"),
        ],
        &[
            cause(
                "forwarders that join what is not adjacent (lists)",
                Shows::Agreement,
                &[
                    control("twins", LISTS, "TO, calls at once: *"),
                    control("twins", LISTS, "SJF, calls at once: *"),
                    control("twins", LISTS, "MLF, calls at once: *"),
                ],
            ),
            cause(
                "the same, and a number of calls in service at once that the thesis does not tell (12)",
                Shows::Agreement,
                &[
                    control("twins", LISTS, "TO, calls at once: 12*"),
                    control("twins", LISTS, "SJF, calls at once: 12*"),
                    control("twins", LISTS, "MLF, calls at once: 12*"),
                ],
            )
            .without(&[
                control("twins", SIZES, "TO: sizes that leave the forwarders *"),
                control("twins", SIZES, "SJF: sizes that leave the forwarders *"),
                control("twins", SIZES, "MLF: sizes that leave the forwarders *"),
            ]),
        ],
    ),
    headline(
        "twins",
        "abstract and chapter 6",
        "TWINS reads shared files faster than other schedulers, by up to",
        &[
            claim(
                "8 ms, than FIFO",
                "abstract",
                "TWINS (8 ms), strided reads of 32 KiB: faster than FIFO (to-agg) by up to",
            ),
            claim(
                "1 ms, than FIFO, HBRR and SW",
                "figures 5.1 and 5.2",
                "reads of shared files: TWINS (1 ms) is faster than FIFO, HBRR and SW",
            ),
        ],
        &[
            cause(
                "another order below, other disks, other noise",
                Shows::Agreement,
                &[
                    control("twins", "conditions", "strided, s*TWINS (1 ms) faster than FIFO (to-agg) by"),
                    control(
                        "twins",
                        "conditions",
                        "strided, no computing*TWINS (1 ms) faster than FIFO (to-agg) by",
                    ),
                    control("twins", "conditions", "strided, 1*TWINS (1 ms) faster than FIFO (to-agg) by"),
                    control(
                        "twins",
                        "conditions",
                        "strided, a barrier*TWINS (1 ms) faster than FIFO (to-agg) by",
                    ),
                ],
            )
            .without(&[control(
                "twins",
                "conditions",
                "strided, as above: TWINS (1 ms) faster than FIFO (to-agg) by",
            )]),
            cause(
                "one value that the thesis does not tell, with a quarter of its bytes",
                Shows::OneCase,
                &[control("sensitivity", "TWINS", "at every end: near the paper's")],
            ),
        ],
    ),
    headline(
        "twins",
        "abstract and chapter 6",
        "TWINS reads shared files faster than without forwarders, by up to",
        &[claim("", "abstract", "TWINS (8 ms), strided reads of 32 KiB: faster than no forwarders by up to")],
        &[
            cause(
                "another order below, other disks, other noise",
                Shows::Sign,
                &[
                    control("twins", "conditions", "strided, s*FIFO (to-agg) faster than no forwarders by"),
                    control(
                        "twins",
                        "conditions",
                        "strided, no computing*FIFO (to-agg) faster than no forwarders by",
                    ),
                    control("twins", "conditions", "strided, 1*FIFO (to-agg) faster than no forwarders by"),
                    control(
                        "twins",
                        "conditions",
                        "strided, a barrier*FIFO (to-agg) faster than no forwarders by",
                    ),
                ],
            )
            .tried("forwarders with FIFO")
            .without(&[control(
                "twins",
                "conditions",
                "strided, as above: FIFO (to-agg) faster than no forwarders by",
            )]),
            cause(
                "servers that are slower for having more clients",
                Shows::Agreement,
                &[control("twins", "abstract, servers' processors", "* us *: TWINS (8 ms) faster than *")],
            ),
        ],
    ),
    headline(
        "twins",
        "chapter 6",
        "one of two applications is faster with TWINS, and they interfere less",
        &[
            claim("than FIFO, up to", PAIRS, "A faster by TWINS (1 ms) than by FIFO, by up to"),
            claim("than HBRR, up to", PAIRS, "A faster by TWINS (1 ms) than by HBRR, by up to"),
            claim(
                "less interference, up to",
                PAIRS,
                "interference lower by TWINS (1 ms) than by FIFO, by up to",
            ),
        ],
        &[cause(
            "times alone that differ by the scheduler, as nothing joins what is not adjacent",
            Shows::Agreement,
            &[control("twins", "figures 5.10 and 5.11, lists", "*, by up to")],
        )],
    ),
    headline(
        "twins",
        "chapter 6",
        "the gains go with less congestion at the servers",
        &[
            claim("than FIFO", "figure 5.5", "disks, reads of 32 KiB: TWINS (1 ms) loses less than FIFO"),
            claim(
                "wide than narrow windows",
                "figure 5.5",
                "disks, reads of 32 KiB: TWINS (8 ms) loses less than 1 ms",
            ),
        ],
        &[cause(
            "the network is the bottleneck, not the disks",
            Shows::Agreement,
            &[control("twins", "figure 5.5", "memory*reads of 32 KiB: *")],
        )],
    ),
    headline(
        "twins",
        "chapter 6",
        "TWINS is as good as collective calls for strided reads",
        &[
            claim("1 ms", "figure 5.6", "strided reads of 32 KiB: twins, 1 ms by collective calls"),
            claim("8 ms", "figure 5.6", "strided reads of 32 KiB: twins, 8 ms by collective calls"),
        ],
        &[
            cause(
                "disks that do not stream for who keeps in step: slower ones, or other noise",
                Shows::Agreement,
                &[
                    control("twins", "figure 5.6, conditions", "strided, slower *"),
                    control("twins", "figure 5.6, conditions", "strided, no computing*"),
                    control("twins", "figure 5.6, conditions", "strided, 1*"),
                ],
            ),
            cause(
                "servers that join, or serve the lowest offset first",
                Shows::Agreement,
                &[control("twins", "figure 5.6, conditions", "strided, servers *")],
            ),
        ],
    ),
];

const LISTS: &str = "tables 3.1, 3.3, 4.1 and 5.1, lists";
const SIZES: &str = "tables 3.1, 3.3, 4.1 and 5.1";
const PAIRS: &str = "figures 5.10 and 5.11";
