//! A coordinator that finds anything in its journal, with checksums that are right, refuses it or goes on from it; and what it
//! writes then is taken again.
#![no_main]

use std::collections::HashMap;
use std::convert::Infallible;

use iogate_core::Time;
use iogate_core::coord::journal::{Log, Medium};
use iogate_core::coord::leader::{Leader, LeaderConfig};
use libfuzzer_sys::fuzz_target;

/// What the bytes change: each three say where, and what is there instead.
const JOURNAL: &str = r#"{"begin":{"version":1,"token":7,"number":9,"clock_offset":1000}}
{"session":{"number":3,"secret":[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16],"uid":1000,"gid":1000,"name":"node1:77"}}
{"session":{"number":4,"secret":[0,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16],"uid":0,"gid":0,"name":"node2:78"}}
{"claim":{"claim":5,"session":3,"request":1,"place":"scratch","members":[1,2],"party":1,"job":"a","bytes":4096,"weight":2,"period":0,"label":"a","arrived":500,"held":{"token":6,"since":600,"admission":0}}}
{"claim":{"claim":6,"session":4,"request":1,"place":"scratch","members":[2],"party":0,"bytes":1,"weight":1,"period":90,"label":"b","arrived":501}}
{"claim":{"claim":7,"session":3,"request":2,"place":"home","party":1,"job":"a","bytes":0,"weight":0,"period":0,"label":"","arrived":502}}
{"token_given":7}
{"gone":7}
{"session_gone":9}
"#;

struct Files(HashMap<String, Vec<u8>>);

impl Medium for Files {
    type Error = Infallible;

    fn boot(&self) -> &str {
        "boot"
    }

    fn read(&mut self, name: &str) -> Result<Option<Vec<u8>>, Infallible> {
        Ok(self.0.get(name).cloned())
    }

    fn replace(&mut self, name: &str, bytes: &[u8]) -> Result<Result<(), Infallible>, Infallible> {
        self.0.insert(name.into(), bytes.into());
        Ok(Ok(()))
    }

    fn append(&mut self, name: &str, at: u64, bytes: &[u8]) -> Result<(), Infallible> {
        let file = self.0.get_mut(name).expect("it was put in its place");
        file.truncate(at as usize);
        file.extend_from_slice(bytes);
        Ok(())
    }

    fn cut(&mut self, name: &str, bytes: u64) -> Result<(), Infallible> {
        self.0.get_mut(name).expect("it was put in its place").truncate(bytes as usize);
        Ok(())
    }
}

fuzz_target!(|bytes: &[u8]| {
    let Some((&boot, edits)) = bytes.split_first() else { return };
    let mut text = JOURNAL.as_bytes().to_vec();
    for edit in edits.chunks_exact(3) {
        let at = usize::from(u16::from_le_bytes([edit[0], edit[1]])) % text.len();
        text[at] = edit[2];
    }
    let mut journal = Vec::new();
    for line in text.split(|&byte| byte == b'\n').filter(|line| !line.is_empty()) {
        journal.extend_from_slice(format!("{:08x} ", crc32fast::hash(line)).as_bytes());
        journal.extend_from_slice(line);
        journal.push(b'\n');
    }
    let reserve = format!(r#"{{"boot":"{}","token":65536}}"#, if boot % 2 == 0 { "boot" } else { "another" });
    let files = HashMap::from([("journal".into(), journal), ("reserve".into(), reserve.into_bytes())]);
    let mut log = Log::new(Files(files));
    let Ok(loaded) = log.load() else { return };
    let leader = Leader::new(LeaderConfig::default(), Time::from_nanos(1 << 40), 2000, &loaded);
    log.append(&leader.all(), &mut || leader.all()).expect("there is room");
    let mut log = Log::new(log.into_medium());
    let again = log.load().expect("it was written here");
    assert!(again.token >= loaded.token, "{again:?} after {loaded:?}");
    let claims = |loaded: &iogate_core::coord::journal::Loaded| loaded.claims.len();
    assert!(claims(&again) <= claims(&loaded), "{again:?} after {loaded:?}");
});
