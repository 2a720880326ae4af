//! The headlines of the five papers, each with the claims that carry it, and the controls of what may make ours differ.

use super::short::{cause, claim, control, headline};
use super::{Cause, Headline, Shows};

/// All of them, paper by paper.
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
        &[cause(
            "the server's page cache, which reads ahead and answers writes from memory",
            Shows::Agreement,
            &[control("aioli", "figure 5, page cache below", "page cache*")],
        )
        .without(&[control("aioli", "figure 5, page cache below", "nothing*")])],
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
    headline(
        "agios",
        "summary and conclusion",
        "a choice for each situation is faster than aIOLi always, by up to",
        &[
            claim("T1", TREES, "T1, trained, over aioli always: shorter by up to"),
            claim("T2", TREES, "T2, trained, over aioli always: shorter by up to"),
            claim("T3", TREES, "T3, trained, over aioli always: shorter by up to"),
        ],
        &[PAGE_CACHES],
    ),
    headline(
        "agios",
        "section 5",
        "it is faster than SJF always, by up to",
        &[
            claim("T1", TREES, "T1, trained, over sjf always: shorter by up to"),
            claim("T2", TREES, "T2, trained, over sjf always: shorter by up to"),
            claim("T3", TREES, "T3, trained, over sjf always: shorter by up to"),
        ],
        &[PAGE_CACHES],
    ),
    headline(
        "agios",
        "summary and conclusion",
        "more situations gain than with one algorithm always",
        &[
            claim("T1, aIOLi", TREES, "T1, trained, over aioli always: more situations gain"),
            claim("T2, aIOLi", TREES, "T2, trained, over aioli always: more situations gain"),
            claim("T3, aIOLi", TREES, "T3, trained, over aioli always: more situations gain"),
            claim("T1, SJF", TREES, "T1, trained, over sjf always: more situations gain"),
            claim("T2, SJF", TREES, "T2, trained, over sjf always: more situations gain"),
            claim("T3, SJF", TREES, "T3, trained, over sjf always: more situations gain"),
        ],
        &[PAGE_CACHES],
    ),
    headline(
        "agios",
        "summary and conclusion",
        "fewer situations lose than with one algorithm always",
        &[
            claim("T1, aIOLi", TREES, "T1, trained, over aioli always: fewer situations lose"),
            claim("T2, aIOLi", TREES, "T2, trained, over aioli always: fewer situations lose"),
            claim("T3, aIOLi", TREES, "T3, trained, over aioli always: fewer situations lose"),
            claim("T1, SJF", TREES, "T1, trained, over sjf always: fewer situations lose"),
            claim("T2, SJF", TREES, "T2, trained, over sjf always: fewer situations lose"),
            claim("T3, SJF", TREES, "T3, trained, over sjf always: fewer situations lose"),
        ],
        &[PAGE_CACHES],
    ),
    headline(
        "agios",
        "section 5",
        "two of the trees choose as well as can be, better than one algorithm always",
        &[
            claim("T1", "table IV", "T1"),
            claim("T2", "table IV", "T2"),
            claim("T3", "table IV", "T3"),
            claim("aIOLi always", "table IV", "aIOLi only"),
            claim("SJF always", "table IV", "SJF only"),
        ],
        &[PAGE_CACHES],
    ),
    headline(
        "agios",
        "summary and conclusion",
        "no algorithm is the best for all: applications and devices matter",
        &[
            claim("TO-agg is the best somewhere", "table III", "to-agg is the best choice somewhere"),
            claim("SJF", "table III", "sjf is the best choice somewhere"),
            claim("MLF", "table III", "mlf is the best choice somewhere"),
            claim("aIOLi", "table III", "aioli is the best choice somewhere"),
            claim("T1 asks for both", "section 4", "T1 asks for all its features"),
        ],
        &[cause(
            "processor time of each call of the kernel, which joining saves on flash",
            Shows::Agreement,
            &[control("agios", "table III, calls of the kernel", "*: to-agg is *")],
        )],
    ),
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
        &[cause(
            "longer runs: ours on flash are over within the first window",
            Shows::Agreement,
            &[control("coordination", "figure 8, longer runs", "flash: bandwidth higher than fifo *")],
        )],
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
        &[claim("", "formulas (1) to (3)", "the interval of the mean has the formula*")],
        &[],
    ),
    headline(
        "twins",
        "abstract and chapter 6",
        "the other schedulers change little for reads",
        &[claim("", "figures 3.6 and 3.7", "reads: HBRR, SJF and MLF take as long as FIFO, within *")],
        &[cause(
            "a forwarder passes requests on before they can be sorted",
            Shows::Agreement,
            &[control("twins", "section 4.2.4", "*: with as many dispatches as calls*")],
        )
        .tried("small reads with FIFO, HBRR and SW")],
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
        &[cause(
            "forwarders that join what is not adjacent (lists)",
            Shows::Agreement,
            &[
                control("twins", LISTS, "TO, calls at once: *"),
                control("twins", LISTS, "SJF, calls at once: *"),
                control("twins", LISTS, "MLF, calls at once: *"),
            ],
        )],
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
                "one value that the thesis does not tell",
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
                "other parameters of backing off",
                Shows::Sign,
                &[control("checkpoint", "how to back off", "ten jobs, the best of these settings: lower by")],
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
        &[cause(
            "other parameters of backing off",
            Shows::Sign,
            &[control("checkpoint", "how to back off", "ten jobs, the best of these settings: lower by")],
        )
        .tried("the time of I/O")],
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
        &[],
    ),
];

const THREADS: &str = "figure 7, threads of the server";
const TREES: &str = "figure 5 and table VII";
const SLOTS: &str = "figure 7, few slots of a mount";
const SEVERAL: &str = "figure 6, several calls at once";
const LISTS: &str = "tables 3.1, 3.3, 4.1 and 5.1, lists";
const SERVERS_BELOW: &str = "figure 7, elevator and cache below";
const SIZES: &str = "tables 3.1, 3.3, 4.1 and 5.1";
const PAIRS: &str = "figures 5.10 and 5.11";
const TEN_BELOW: &str = "figure 4.8, what lies below";
const OTHER_READING: &str = "figure 4.8, the other reading";

/// Of AGIOS's trees there is no control of their own.
const PAGE_CACHES: Cause = cause(
    "page caches below the servers",
    Shows::Agreement,
    &[
        control("agios", "figures 3 and 4, page caches below", "Graphene, a shared file, page cache: *"),
        control("agios", "figures 3 and 4, page caches below", "Pastel, a file per process, page cache: *"),
    ],
)
.tried("figures 3 and 4")
.without(&[control("agios", "figure 3", "*"), control("agios", "figure 4", "*")]);
