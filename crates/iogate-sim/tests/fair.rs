//! Gates of simulated servers that divide device time among applications.

use std::collections::BTreeMap;

use iogate_sim::metrics;
use iogate_sim::result::ClassResult;
use iogate_sim::scenario::{Plan, ScenarioError, Source};
use iogate_sim::world::{Observer, Served, simulate};

const MS: u64 = 1_000_000;

#[derive(Default)]
struct Seen(Vec<(u32, u64, u64, u64)>);

impl Observer for Seen {
    fn served(&mut self, served: &Served) {
        let (start, end) = (served.start.as_nanos(), served.end.as_nanos());
        self.0.push((served.app.0, served.bytes, start, end));
    }
}

/// Device time and bytes of each application, as long as all of them have something to do, and how long that was.
struct Division {
    time: BTreeMap<u32, u64>,
    bytes: BTreeMap<u32, u64>,
    until: u64,
}

impl Seen {
    fn divide(&self) -> Division {
        let mut last: BTreeMap<u32, u64> = BTreeMap::new();
        last.extend(self.0.iter().map(|&(app, _, _, end)| (app, end)));
        let until = *last.values().min().unwrap();
        let (mut time, mut bytes) = (BTreeMap::new(), BTreeMap::new());
        for &(app, length, start, end) in self.0.iter().filter(|one| one.3 <= until) {
            *time.entry(app).or_default() += end - start;
            *bytes.entry(app).or_default() += length;
        }
        Division { time, bytes, until }
    }
}

/// Applications of eight processes each, with these further settings, at one server.
fn read(device: &str, gate: &str, apps: &[&str]) -> Result<Plan, ScenarioError> {
    let mut text = format!(
        "title = \"shares\"\n[clients]\nnodes = {}\n[servers]\nnodes = 1\ndevice = \"{device}\"\n[servers.gate]\n{gate}\n",
        8 * apps.len()
    );
    for (number, settings) in apps.iter().enumerate() {
        text += &format!(
            "[[app]]\nname = \"app-{number}\"\nprocesses = 8\nnodes = 8\nfirst_node = {}\nop = \"read\"\n{settings}\n",
            8 * number
        );
    }
    let open = |_: &str| Err("there is none".into());
    Plan::read(&Source { name: "shares", text: &text, settings: &[], quick: false, open: &open })
}

fn run(device: &str, gate: &str, apps: &[&str]) -> Division {
    let plan = read(device, gate, apps).unwrap_or_else(|error| panic!("{error}"));
    let mut seen = Seen::default();
    simulate(&plan.points[0].scenario, 7, &mut seen).unwrap();
    seen.divide()
}

const RANDOM: &str = "pattern = \"random\"\nsharing = \"shared\"\nfile_bytes = \"8GiB\"\nbytes = \"16MiB\"\nrequest = \"64KiB\"\n";
const STREAMS: &str =
    "pattern = \"contiguous\"\nsharing = \"per-process\"\nbytes = \"64MiB\"\nrequest = \"256KiB\"\n";

/// MiB a second of an application.
fn mib(divided: &Division, app: u32) -> u64 {
    (divided.bytes[&app] * 1_000 / (divided.until / 1_000_000)) >> 20
}

#[test]
fn device_time_is_divided_by_weights_on_any_device() {
    for (device, lot) in [("sata-7200-250g", 400 * MS), ("pcie-ssd-100g", 3 * MS)] {
        for scheduler in ["fifo", "sjf", "aioli", "mlf", "hbrr", "to-agg"] {
            let apps = [1, 2, 4].map(|weight| format!("{RANDOM}weight = {weight}"));
            let apps = apps.each_ref().map(String::as_str);
            let divided = run(device, &format!("scheduler = \"{scheduler}\"\nfair = true"), &apps);
            let each =
                [1, 2, 4].map(|weight| divided.time[&(weight as u32).ilog2().wrapping_add(1)] / weight);
            let apart = each.iter().max().unwrap() - each.iter().min().unwrap();
            assert!(apart <= 2 * lot, "{device}, {scheduler}: {each:?} after {} ns", divided.until);
            assert!(divided.until > 10 * lot, "{device}: {} ns show nothing", divided.until);
        }
    }
}

#[test]
fn groups_of_any_size_have_their_shares() {
    let apps = ["many", "many", "many", "few"].map(|group| format!("{RANDOM}group = \"{group}\""));
    let apps = apps.each_ref().map(String::as_str);
    for (device, lot) in [("sata-7200-250g", 400 * MS), ("pcie-ssd-100g", 3 * MS)] {
        let divided = run(device, "fair = true\n[group.many]\nweight = 2\n[group.few]\nweight = 3", &apps);
        let each = [1, 2, 3].map(|app| divided.time[&app]);
        let (many, few) = (each.iter().sum::<u64>(), divided.time[&4]);
        assert!(divided.until > 10 * lot, "{device}: {} ns show nothing", divided.until);
        assert!((many / 2).abs_diff(few / 3) <= 2 * lot, "{device}: {many} of three and {few} of one");
        let apart = each.iter().max().unwrap() - each.iter().min().unwrap();
        assert!(apart <= 2 * lot, "{device}: {each:?}");
    }
    // A cap is over all of a group, and each of them has its part.
    let divided = run("pcie-ssd-100g", "fair = true\n[group.many]\nmax = \"30MiB/s\"\n[group.few]", &apps);
    let mib = |app| mib(&divided, app);
    let many = mib(1) + mib(2) + mib(3);
    assert!((27..=30).contains(&many), "{many} MiB/s");
    assert!([1, 2, 3].into_iter().all(|app| (8..=10).contains(&mib(app))), "{many} MiB/s, and unevenly");
    assert!(mib(4) > 100, "{} MiB/s", mib(4));
}

/// What a run says of groups is what they had: bytes, by their time, and shares while all were there, at the weights.
#[test]
fn what_groups_had_is_told() {
    let apps = ["many", "many", "few"].map(|group| format!("{RANDOM}group = \"{group}\""));
    let late = format!("{RANDOM}start = \"20ms\"");
    let apps = [&apps[..], &[late][..]].concat();
    let apps: Vec<&str> = apps.iter().map(String::as_str).collect();
    let classes = |gate: &str| {
        let plan = read("pcie-ssd-100g", gate, &apps).unwrap_or_else(|error| panic!("{error}"));
        let scenario = &plan.points[0].scenario;
        let run = simulate(scenario, 7, &mut ()).unwrap();
        for class in &run.classes {
            let app = run.apps.iter().find(|app| !class.is_group && app.name == class.name);
            let within = run.classes.iter().filter(|one| one.group.as_ref() == Some(&class.name));
            let expected = app.map_or_else(|| within.map(|one| one.bytes).sum(), |app| app.bytes);
            assert_eq!(class.bytes, expected, "{}", class.name);
        }
        let beside: u64 =
            run.classes.iter().filter(|one| one.group.is_none()).map(|one| one.beside_bytes).sum();
        assert!(run.classes.iter().all(|one| one.beside_bytes_all == beside));
        run.classes
    };
    let metric =
        |class: &ClassResult, name: &str| metrics::find(metrics::CLASS, name).unwrap().of(class).unwrap();
    let divided = classes("fair = true\n[group.many]\nweight = 3\n[group.few]\nweight = 2");
    let named: Vec<_> =
        divided.iter().map(|one| (one.name.as_str(), one.group.as_deref(), one.is_group)).collect();
    let many = ("many", None, true);
    let within = |name, group| (name, Some(group), false);
    let expected =
        [many, within("app-0", "many"), within("app-1", "many"), ("few", None, true), within("app-2", "few")];
    assert_eq!((&named[..5], named[5]), (&expected[..], ("app-3", None, false)));
    for (class, share) in divided.iter().zip([3.0, 1.5, 1.5, 2.0, 2.0, 1.0]) {
        let found = metric(class, "share");
        assert!((found - share / 6.0).abs() < 0.02, "{}: {found}, expected {share} of 6", class.name);
    }
    let capped = classes("fair = true\n[group.many]\nmax = \"30MiB/s\"\n[group.few]");
    let mib = metric(&capped[0], "bandwidth") / f64::from(1 << 20);
    assert!((28.0..=30.5).contains(&mib), "{mib} MiB/s");
}

#[test]
fn groups_are_refused_with_what_is_wrong() {
    let staff = "fair = true\n[group.staff]\nweight = 3";
    let capped = "fair = true\n[group.staff]\nmax = \"3MB/s\"";
    let shared = format!("{capped}\n[global]\ngates = \"servers\"");
    let (inside, floor) = ("group = \"staff\"", "group = \"staff\"\nmin = \"2MB/s\"");
    for (gate, apps, says) in [
        (
            staff,
            &["group = \"stuff\""][..],
            "app.app-0.group = stuff: no such group; did you mean 'staff'? expected one of: staff",
        ),
        (
            "fair = true",
            &[inside],
            "app.app-0.group = staff: no such group; add [group.staff], or leave it out",
        ),
        (staff, &[""], "no application is in group.staff: name it in a `group`, or remove it"),
        ("fair = true\n[group.staff]\nwieght = 3", &[inside], "did you mean 'weight'?"),
        (
            "fair = true\n[group.\"a b\"]\nweight = 3",
            &[""],
            "a group called 'a b': expected letters, digits, - and _",
        ),
        (
            capped,
            &[floor, floor],
            "group.staff.max is 3000000 bytes a second, and those in it are promised 4000000 together",
        ),
        (
            &shared,
            &[floor, floor],
            "group.staff.max is 3000000 bytes a second, and those in it are promised 4000000 together",
        ),
        (
            "depth = 4\n[group.staff]",
            &[inside],
            "group: no gate divides anything; set servers.gate.fair = true",
        ),
    ] {
        let apps: Vec<String> = apps.iter().map(|settings| format!("{RANDOM}{settings}")).collect();
        let apps: Vec<&str> = apps.iter().map(String::as_str).collect();
        let said = read("unit:1ms", gate, &apps).map(|_| "nothing").unwrap_err().to_string();
        assert!(said.contains(says), "{said}\nshould say\n{says}");
        assert_eq!(said.lines().count(), 1, "{said}");
    }
}

#[test]
fn streams_keep_what_a_disk_gives_them() {
    let rate = |gate: &str, apps: &[&str]| {
        let divided = run("sata-7200-250g", gate, apps);
        divided.bytes.values().sum::<u64>() * 1_000 / (divided.until / 1_000_000)
    };
    let alone = rate("scheduler = \"aioli\"", &[STREAMS]);
    assert!(rate("scheduler = \"aioli\"\nfair = true", &[STREAMS]) >= alone, "one by itself is not held up");
    let both = rate("scheduler = \"aioli\"\nfair = true\nlot = \"1s\"", &[STREAMS, STREAMS]);
    assert!(both * 100 >= alone * 85, "{both} bytes a second of {alone}");
    let by_default = rate("scheduler = \"aioli\"\nfair = true", &[STREAMS, STREAMS]);
    assert!(by_default * 4 >= alone * 3, "{by_default} bytes a second of {alone}");
}

#[test]
fn caps_and_floors_hold() {
    let capped = format!("{RANDOM}max = \"10MiB/s\"");
    let divided = run("pcie-ssd-100g", "fair = true", &[&capped, RANDOM]);
    // The other one ends first: what is capped has had what it may until then.
    assert!((9..=10).contains(&mib(&divided, 1)), "{} MiB/s", mib(&divided, 1));
    assert!(mib(&divided, 2) > 100, "{} MiB/s", mib(&divided, 2));
    let floored = format!("{RANDOM}min = \"40MiB/s\"\nweight = 1");
    let greedy = format!("{RANDOM}weight = 1000");
    let divided = run("pcie-ssd-100g", "fair = true", &[&floored, &greedy]);
    assert!(mib(&divided, 1) >= 39, "{} MiB/s", mib(&divided, 1));
    let without = run("pcie-ssd-100g", "fair = true", &[RANDOM, &greedy]);
    assert!(mib(&without, 1) < 10, "{} MiB/s", mib(&without, 1));
}
