//! The headlines of AGIOS.

use super::super::short::{cause, claim, control, headline};
use super::super::{Headline, Shows};

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
        &[],
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
        &[
            cause(
                "page caches below the servers",
                Shows::Agreement,
                &[control("agios", TREES_BELOW, "page cache: *, over sjf always: shorter by up to")],
            )
            .without(&[control("agios", TREES, "*, over sjf always: shorter by up to")]),
            cause(
                "page caches, and processor time of each call of the kernel",
                Shows::Agreement,
                &[control(
                    "agios",
                    TREES_BELOW,
                    "page cache, calls of 100 us: *, over sjf always: shorter by up to",
                )],
            )
            .without(&[control("agios", TREES, "*, over sjf always: shorter by up to")]),
        ],
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
        &[
            cause(
                "page caches below the servers",
                Shows::Agreement,
                &[control("agios", TREES_BELOW, "page cache: *: more situations gain")],
            )
            .without(&[control("agios", TREES, "*: more situations gain")]),
            cause(
                "page caches, and processor time of each call of the kernel",
                Shows::Agreement,
                &[control("agios", TREES_BELOW, "page cache, calls of 100 us: *: more situations gain")],
            )
            .without(&[control("agios", TREES, "*: more situations gain")]),
        ],
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
        &[
            cause(
                "page caches below the servers",
                Shows::Agreement,
                &[control("agios", TREES_BELOW, "page cache: *: fewer situations lose")],
            )
            .without(&[control("agios", TREES, "*: fewer situations lose")]),
            cause(
                "page caches, and processor time of each call of the kernel",
                Shows::Agreement,
                &[control("agios", TREES_BELOW, "page cache, calls of 100 us: *: fewer situations lose")],
            )
            .without(&[control("agios", TREES, "*: fewer situations lose")]),
        ],
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
        &[
            cause(
                "page caches below the servers",
                Shows::Agreement,
                &[control("agios", CORRECT_BELOW, "page cache: *")],
            )
            .without(&[control("agios", "table IV", "*")]),
            cause(
                "page caches, and processor time of each call of the kernel",
                Shows::Agreement,
                &[control("agios", CORRECT_BELOW, "page cache, calls of 100 us: *")],
            )
            .without(&[control("agios", "table IV", "*")]),
        ],
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
const TREES_BELOW: &str = "figure 5 and table VII, page caches below";
const CORRECT_BELOW: &str = "table IV, page caches below";
