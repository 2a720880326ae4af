//! What is written is there again, whatever is done to it in between.

use iogate_core::coord::journal::TOKENS_RESERVED;

use super::super::{ClaimRecord, HeldRecord, SessionRecord};
use super::*;

fn claim(number: u64, token: Option<u64>) -> Record {
    Record::Claim(ClaimRecord {
        claim: number,
        session: 1,
        request: number,
        place: "nfs:io1:/scratch".into(),
        members: vec![1, 4],
        party: 7,
        job: "slurm:7".into(),
        bytes: 1 << 40,
        weight: 1,
        period: 0,
        label: "a \"job\"\n".into(),
        arrived: 5,
        held: token.map(|token| HeldRecord { token, since: 6, admission: 1 }),
    })
}

fn session() -> Record {
    Record::Session(SessionRecord { number: 1, secret: [9; 16], uid: 7, gid: 8, name: "n".into() })
}

/// Opens, loads, begins with what was there, as a coordinator does.
fn started(dir: &Path) -> (Local, Loaded) {
    let mut journal = Local::open(dir).unwrap();
    let loaded = journal.load().unwrap();
    journal.append(&[], &mut || Loaded { is_incomplete: false, ..loaded.clone() }.records(0)).unwrap();
    (journal, loaded)
}

fn never() -> Vec<Record> {
    panic!("it need not begin anew")
}

#[test]
fn what_was_appended_is_there_after_a_kill() {
    let dir = tempfile::tempdir().unwrap();
    let (mut journal, loaded) = started(dir.path());
    assert_eq!((loaded.token, loaded.is_incomplete), (0, false), "the first time");
    journal.append(&[session(), claim(2, None), claim(3, None)], &mut never).unwrap();
    journal.append(&[claim(2, Some(5)), Record::Gone(3)], &mut never).unwrap();
    drop(journal);
    for _ in 0..2 {
        let (_journal, loaded) = started(dir.path());
        let records = loaded.records(0);
        assert_eq!(records[1..], [session(), claim(2, Some(5))]);
        assert_eq!((loaded.token, loaded.number, loaded.is_incomplete), (5, 3, false));
        assert_eq!(loaded.clock_offset, Some(0));
    }
}

#[test]
fn a_line_that_was_cut_short_counts_for_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (mut journal, _) = started(dir.path());
    journal.append(&[session(), claim(2, None)], &mut never).unwrap();
    drop(journal);
    let path = dir.path().join("journal");
    let whole = std::fs::read(&path).unwrap();
    std::fs::write(&path, &whole[..whole.len() - 1]).unwrap();
    assert!(started(dir.path()).1.claims.is_empty());
}

#[test]
fn damage_is_told_with_the_file_and_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    let (mut journal, _) = started(dir.path());
    journal.append(&[session(), claim(2, None)], &mut never).unwrap();
    drop(journal);
    let path = dir.path().join("journal");
    let mut bytes = std::fs::read(&path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&path, &bytes).unwrap();
    let error = Local::open(dir.path()).unwrap().load().unwrap_err().to_string();
    assert!(error.contains(&path.display().to_string()) && error.contains("move it away"), "{error}");
    std::fs::remove_file(&path).unwrap();
    let (_journal, loaded) = started(dir.path());
    assert!(loaded.is_incomplete && loaded.token >= TOKENS_RESERVED, "{loaded:?}");
}

#[test]
fn after_a_boot_tokens_go_on_behind_all_that_may_have_been_given() {
    let dir = tempfile::tempdir().unwrap();
    let (mut journal, _) = started(dir.path());
    journal.append(&[session(), claim(2, Some(40))], &mut never).unwrap();
    drop(journal);
    // What the kernel had not written is gone, or zeros.
    let path = dir.path().join("journal");
    let mut bytes = std::fs::read(&path).unwrap();
    let end = bytes.len();
    bytes[end - 30..end - 1].fill(0);
    std::fs::write(&path, &bytes).unwrap();
    std::fs::write(dir.path().join("reserve"), r#"{"boot":"another","token":65536}"#).unwrap();
    let (_journal, loaded) = started(dir.path());
    assert!(loaded.is_incomplete && loaded.claims.is_empty(), "{loaded:?}");
    assert_eq!((loaded.token, loaded.sessions.len(), loaded.clock_offset), (65536, 1, None));
}

#[test]
fn who_is_killed_while_it_starts_after_a_crash_hides_no_crash() {
    let dir = tempfile::tempdir().unwrap();
    let (mut journal, _) = started(dir.path());
    journal.append(&[session(), claim(2, Some(40))], &mut never).unwrap();
    drop(journal);
    std::fs::write(dir.path().join("reserve"), r#"{"boot":"another","token":65536}"#).unwrap();
    for _ in 0..3 {
        let loaded = Local::open(dir.path()).unwrap().load().unwrap();
        assert!(loaded.is_incomplete && loaded.token >= 65536, "{loaded:?}");
    }
    drop(started(dir.path()));
    assert!(!started(dir.path()).1.is_incomplete, "it has begun anew under this boot");
}

#[test]
fn two_do_not_share_a_directory() {
    let dir = tempfile::tempdir().unwrap();
    let journal = Local::open(dir.path()).unwrap();
    let error = Local::open(dir.path()).unwrap_err().to_string();
    assert!(error.contains(&format!("process {}", std::process::id())), "{error}");
    drop(journal);
    Local::open(dir.path()).unwrap();
}

#[test]
fn tokens_are_reserved_before_they_are_given() {
    let dir = tempfile::tempdir().unwrap();
    let (mut journal, _) = started(dir.path());
    for token in [1, TOKENS_RESERVED - 1, 3 * TOKENS_RESERVED, 4 * TOKENS_RESERVED] {
        journal.append(&[claim(token, Some(token))], &mut never).unwrap();
        let text = std::fs::read_to_string(dir.path().join("reserve")).unwrap();
        let reserved = text.split_once("\"token\":").unwrap().1.trim_end_matches('}').parse::<u64>().unwrap();
        assert!(reserved > token, "{text}");
    }
}

#[test]
fn it_begins_anew_before_it_is_large() {
    let dir = tempfile::tempdir().unwrap();
    let (mut journal, loaded) = started(dir.path());
    let many: Vec<_> = (0..1000).flat_map(|n| [claim(n, Some(n)), Record::Gone(n)]).collect();
    let mut times = 0;
    for _ in 0..100 {
        journal
            .append(&many, &mut || {
                times += 1;
                Loaded { token: 999, ..loaded.clone() }.records(0)
            })
            .unwrap();
    }
    assert!(times > 0);
    assert!(std::fs::metadata(dir.path().join("journal")).unwrap().len() < 32 << 20);
    drop(journal);
    assert_eq!(started(dir.path()).1.token, 999);
}

#[test]
fn it_goes_on_in_the_file_that_has_the_name_even_if_that_is_not_durable() {
    let dir = tempfile::tempdir().unwrap();
    let (mut journal, loaded) = started(dir.path());
    journal.append(&[session(), claim(2, None)], &mut never).unwrap();
    // What cannot be synced: the journal begins anew, is renamed, and then there is an error.
    journal.0.medium_mut().open = File::open("/dev/null").unwrap();
    let many: Vec<_> = (10..1000).flat_map(|n| [claim(n, None), Record::Gone(n)]).collect();
    let mut times = 0;
    while times < 2 {
        journal
            .append(&many, &mut || {
                times += 1;
                let mut all = loaded.records(0);
                all.extend([session(), claim(2, None)]);
                all
            })
            .unwrap();
    }
    journal.append(&[claim(3, Some(7))], &mut never).unwrap();
    drop(journal);
    let (_journal, loaded) = started(dir.path());
    assert_eq!(loaded.records(0)[1..], [session(), claim(2, None), claim(3, Some(7))]);
}

#[test]
fn what_is_no_journal_is_refused_and_a_damaged_end_is_cut() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("journal");
    let mut noise = vec![0; 100_000];
    crate::system::random(&mut noise).unwrap();
    for reserve in [None, Some(r#"{"boot":"another","token":65536}"#)] {
        for bytes in [&noise[..], &noise[..7], b"\n", b"no journal\nat all\n"] {
            std::fs::write(&path, bytes).unwrap();
            if let Some(reserve) = reserve {
                std::fs::write(dir.path().join("reserve"), reserve).unwrap();
            }
            let error = Local::open(dir.path()).unwrap().load().unwrap_err().to_string();
            assert!(error.contains("is damaged at byte 0") && error.contains("move it away"), "{error}");
        }
    }
    std::fs::remove_file(&path).unwrap();
    std::fs::remove_file(dir.path().join("reserve")).unwrap();
    let (mut journal, _) = started(dir.path());
    journal.append(&[session(), claim(2, Some(40))], &mut never).unwrap();
    drop(journal);
    let mut bytes = std::fs::read(&path).unwrap();
    bytes.extend_from_slice(&noise);
    std::fs::write(&path, bytes).unwrap();
    std::fs::write(dir.path().join("reserve"), r#"{"boot":"another","token":65536}"#).unwrap();
    let (_journal, loaded) = started(dir.path());
    assert_eq!(loaded.records(0)[1..], [session(), claim(2, Some(40))]);
}
