//! The headlines of AGIOS.

use super::super::short::{cause, claim, control, headline};
use super::super::{Cause, Headline, Shows};

pub(super) const ALL: &[Headline] = &[
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
];

const TREES: &str = "figure 5 and table VII";

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
