//! The scenarios that are built in: those of `scenarios/`.

macro_rules! all {
    ($($name:literal),* $(,)?) => {
        &[$(($name, include_str!(concat!("../../../../scenarios/", $name, ".toml")))),*]
    };
}

/// Of each its name and its text, by name.
pub const BUILT_IN: &[(&str, &str)] = all![
    "agios",
    "agios-graphene-below",
    "agios-pastel",
    "agios-pastel-below",
    "aioli-ior-and-cat",
    "aioli-one-ior",
    "aioli-one-ior-cached",
    "aioli-one-ior-collective",
    "aioli-run-lengths",
    "aioli-sequential",
    "aioli-sequential-readers",
    "aioli-ten-applications",
    "aioli-threads",
    "aioli-two-iors",
    "aioli-two-iors-collective",
    "checkpoint-alone",
    "checkpoint-backoff",
    "checkpoint-devices",
    "checkpoint-forwarders",
    "checkpoint-jobs",
    "checkpoint-jobs-large",
    "checkpoint-mix",
    "checkpoint-mix-below",
    "checkpoint-pair",
    "checkpoint-pair-below",
    "coordination-applications-disk",
    "coordination-applications-flash",
    "coordination-controls",
    "coordination-finish-times",
    "coordination-formulas",
    "coordination-servers-below",
    "coordination-servers-disk",
    "coordination-servers-flash",
    "coordination-windows-below",
    "coordination-windows-disk",
    "coordination-windows-flash",
    "forwarders",
    "global-cap",
    "global-shares",
    "mechanisms",
    "mechanisms-open-loop",
    "own-device",
    "scale-clients",
    "scale-servers",
    "sets-magnitudes",
    "sets-periods",
    "shares",
    "twins-below",
    "twins-below-direct",
    "twins-collective",
    "twins-contention",
    "twins-contention-direct",
    "twins-depth",
    "twins-direct",
    "twins-forwarders",
    "twins-schedulers",
    "twins-server-windows",
    "twins-two-applications",
    "twins-two-applications-direct",
    "twins-variants",
    "twins-windows",
    "two-readers",
    "windows",
];

/// The text of the one with this name.
pub fn built_in(name: &str) -> Option<&'static str> {
    BUILT_IN.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
}
