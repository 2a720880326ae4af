//! Any text is a setting of some scheduler, which reads back as written, or is refused.
#![no_main]

use iogate_core::SchedulerConfig;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let mut words = text.split([',', '=', '\n']);
    let Ok(mut settings) = SchedulerConfig::by_name(words.next().unwrap_or_default()) else { return };
    while let (Some(name), Some(value)) = (words.next(), words.next()) {
        if settings.set(name, value).is_ok() {
            let written: Vec<_> = settings.values().map(|(param, value)| (param.name, value)).collect();
            let mut again = SchedulerConfig::new(settings.kind());
            for (name, value) in written {
                again.set(name, &value).expect("what was written is read");
            }
            assert_eq!(again, settings);
        }
    }
});
