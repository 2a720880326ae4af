//! What comes of headlines whose claims are made up.

use iogate_report::claims::{Claims, Interval, Range, Tolerance};

use super::*;

/// By how many percent something is lower: in the paper by 30, within 10 points.
fn lower(low: f64, high: f64) -> Statement {
    let interval = Interval { low, mean: f64::midpoint(low, high), high };
    Statement::Number {
        published: (30.0, 30.0),
        ours: Range::of([interval]),
        unit: " %".into(),
        no_change: Some(0.0),
        tolerance: Tolerance::Within(10.0),
    }
}

fn records(all: &[(&str, &str, Statement)]) -> Vec<(&'static str, Record)> {
    let mut claims = Claims::default();
    all.iter().for_each(|(figure, what, statement)| claims.add(*figure, *what, statement.clone()));
    let section =
        SectionRecord { title: "Figure 1: a, b".into(), seeds: (8, 8), commits: Vec::new(), claims };
    vec![("aioli", Record { command: "iogate reproduce aioli".into(), sections: vec![section] })]
}

const fn named(called: &'static str, what: &'static str) -> Named {
    Named { called, figure: "figure 1", what }
}

const fn of(says: &'static str, claims: &'static [Named], causes: &'static [Cause]) -> Headline {
    Headline { page: "aioli", place: "abstract", says, claims, causes }
}

const fn cause(supposed: &'static str, shows: Shows, controls: &'static [Control]) -> Cause {
    Cause { supposed, tried: "", shows, controls, without: &[] }
}

const fn below(what: &'static str) -> Control {
    Control { page: "aioli", figure: "below", what }
}

const CASES: &[Headline] = &[
    of("all", &[named("a", "agrees"), named("b", "agrees too")], &[]),
    of(
        "less",
        &[named("", "in sign")],
        &[cause("caches", Shows::Agreement, &[below("cache *")]), cause("moons", Shows::Agreement, &[])],
    ),
    of(
        "more",
        &[named("", "other way")],
        &[
            cause("sorting", Shows::Sign, &[below("sorted")]),
            cause("size", Shows::Agreement, &[below("sorted")]),
        ],
    ),
    of("wide", &[named("", "wide")], &[]),
    of(
        "some",
        &[named("a", "agrees"), named("b", "other way")],
        &[cause("a value", Shows::OneCase, &[below("ends")])],
    ),
    of("lost", &[named("", "other way")], &[]),
    of(
        "apart",
        &[named("", "in sign")],
        &[Cause { tried: "mixes", ..cause("caches", Shows::Agreement, &[below("cache *")]) }],
    ),
    of(
        "no more",
        &[named("", "in sign")],
        &[Cause {
            without: &[below("cache of nodes")],
            ..cause("caches", Shows::Agreement, &[below("cache *")])
        }],
    ),
    of(
        "no more than itself",
        &[named("a", "agrees"), named("b", "agrees too"), named("c", "other way")],
        &[cause("caches", Shows::Agreement, &[below("cache *")])],
    ),
];

fn all() -> Vec<(&'static str, Record)> {
    records(&[
        ("figure 1", "agrees", lower(29.0, 31.0)),
        ("figure 1", "agrees too", lower(25.0, 31.0)),
        ("figure 1", "in sign", lower(5.0, 6.0)),
        ("figure 1", "other way", lower(-9.0, -8.0)),
        ("figure 1", "wide", lower(-50.0, 50.0)),
        ("below", "cache of nodes", lower(29.0, 31.0)),
        ("below", "cache of servers", lower(5.0, 6.0)),
        ("below", "cache of both", lower(-50.0, 50.0)),
        ("below", "sorted", lower(5.0, 6.0)),
        ("below", "ends", Statement::Everywhere { kept: 0, open: 0, all: 16 }),
    ])
}

fn rendered(records: &Records, headlines: &[Headline]) -> String {
    table(records, headlines).unwrap_or_else(|error| panic!("{error:?}"))
}

fn refused(records: &Records, headline: Headline) -> String {
    format!("{:?}", table(records, &[headline]).expect_err("it is false"))
}

#[test]
fn verdicts_and_causes_are_computed_from_the_claims() {
    let text = rendered(&all(), CASES);
    let link = "[aioli](aioli.md#figure-1-a-b), abstract";
    let control = "[control](aioli.md#figure-1-a-b)";
    for row in [
        format!(
            "| {link} | all | a: 30 % (\u{b1} 10 points); b: 30 % (\u{b1} 10 points) | a: 30 (29 to 31) %, agrees; b: 28 (25 to 31) %, \
             agrees | reproduced (2 of 2) | - |"
        ),
        format!(
            "| less | 30 % (\u{b1} 10 points) | 5.50 (5 to 6) % | in sign | caches ({control}): 1 of 3 agree, 1 undecided, holds in part; \
             moons: not tested |"
        ),
        format!(
            "| not | sorting ({control}): 1 of 1 have the paper's direction, holds for the direction; size ({control}): 0 of 1 agree, does not \
             hold |"
        ),
        format!(
            "| in sign | caches, tried on mixes ({control}): 1 of 3 agree, 1 undecided, holds in part there |"
        ),
        format!(
            "| in sign | caches ({control}): 1 of 3 agree, 1 undecided, without it 1 of 1, does not hold |"
        ),
        format!(
            "| partly: 2 agree, 1 do not agree | caches ({control}): 1 of 3 agree, 1 undecided, does not hold |"
        ),
        "| undecided | intervals are too wide |".to_owned(),
        format!(
            "| partly: 1 agree, 1 do not agree | a value ({control}): so in 0 of 16 cases, does not hold |"
        ),
        "| not | not tested |".to_owned(),
    ] {
        assert!(text.contains(&row), "{row}\n{text}");
    }
    let counted = "Of 9 headlines: 1 reproduced in sign and within the tolerance, 3 in sign only, 2 partly, 1 undecided, 2 not. Of the 8 that \
                   are not reproduced: for 2 one holds in part or for the direction, for 3 none that was tested on it holds, for 1 one was \
                   tested on another figure only, for 1 none was tested, for 1 intervals are too wide.";
    assert!(text.contains(counted), "{text}");
}

#[test]
fn a_cause_follows_its_control() {
    let held = |statement| {
        let mut records = all();
        let claims = &mut records[0].1.sections[0].claims;
        claims.all.retain(|claim| claim.what != "ends");
        claims.add("below", "ends", statement);
        let said = rendered(&records, &CASES[4..5]);
        said.lines().last().and_then(|row| row.split("cases, ").nth(1)).unwrap_or(&said).to_owned()
    };
    assert_eq!(held(Statement::Everywhere { kept: 1, open: 0, all: 16 }), "holds |");
    assert_eq!(held(Statement::Everywhere { kept: 0, open: 2, all: 16 }), "2 undecided, undecided |");
    assert_eq!(held(Statement::Everywhere { kept: 0, open: 0, all: 16 }), "does not hold |");
    assert!(held(Statement::Everywhere { kept: 0, open: 0, all: 0 }).contains("| a value: no results |"));
}

#[test]
fn what_is_not_there_is_an_error() {
    let records = all();
    const AGREES: &[Named] = &[named("", "agrees")];
    const SHORT: &[Named] = &[named("", "agree")];
    const SEVERAL: &[Named] = &[named("", "agrees*")];
    let error = refused(&records, of("x", SHORT, &[]));
    assert!(
        error.contains("the headline 'x': 'agree' of 'figure 1' is not among the claims of aioli.json"),
        "{error}"
    );
    let error = refused(&records, of("x", SEVERAL, &[]));
    assert!(error.contains("the headline 'x': 'agrees*' names agrees; agrees too"), "{error}");
    let error = refused(&records, of("x", &[], &[]));
    assert!(error.contains("the headline 'x' of aioli has no claim"), "{error}");
    const FALSE: &[Cause] = &[cause("y", Shows::Sign, &[below("cache"), below("sorted")])];
    let error = refused(&records, of("x", AGREES, FALSE));
    assert!(error.contains("'cache' of 'below' is not among the claims of aioli.json"), "{error}");
    let elsewhere = Headline { page: "aoli", ..of("x", AGREES, &[]) };
    let error = refused(&records, elsewhere);
    assert!(error.contains("is on the page aoli; expected one of aioli, agios"), "{error}");
    // A page that has no record has no results.
    let text = rendered(&[], &CASES[1..2]);
    assert!(text.contains("| aioli, abstract | less |  |  | no results | - |"), "{text}");
}

#[test]
fn a_name_stands_for_others_where_it_has_a_star() {
    for (pattern, name, is) in [
        ("reads", "reads", true),
        ("reads", "reads, all", false),
        ("reads*", "reads, all", true),
        ("* all", "reads, all", true),
        ("r*, *l", "reads, all", true),
        ("r*, *k", "reads, all", false),
        ("a*b*c", "a c b c", true),
        ("a*b*b", "ab", false),
        ("", "reads", false),
        ("*", "reads", true),
    ] {
        assert_eq!(name_fits(pattern.as_bytes(), name.as_bytes()), is, "{pattern}: {name}");
    }
}

#[test]
fn no_figure_of_a_paper_stands_in_the_list() {
    let mut papers: Vec<&str> = list::ALL.into_iter().flatten().map(|headline| headline.page).collect();
    papers.dedup();
    assert_eq!(papers, ["aioli", "agios", "coordination", "twins", "checkpoint"]);
    for headline in list::ALL.into_iter().flatten() {
        assert!(!headline.says.contains(|c: char| c.is_ascii_digit()), "{}", headline.says);
        for cause in headline.causes {
            assert!(!cause.supposed.contains(['%', '.']), "{}", cause.supposed);
        }
    }
}
