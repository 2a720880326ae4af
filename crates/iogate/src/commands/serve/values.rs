//! Values of configuration files that are more than a word or a number.

use std::time::Duration;

use iogate_net::Endpoint;
use serde::Deserialize;

use crate::settings;

macro_rules! from_text {
    ($name:ident($inner:ty), $parse:expr) => {
        #[derive(Clone, Debug, Deserialize, PartialEq)]
        #[serde(try_from = "String")]
        pub(crate) struct $name(pub(crate) $inner);

        impl TryFrom<String> for $name {
            type Error = String;

            fn try_from(text: String) -> Result<$name, String> {
                let parse: fn(&str) -> Result<$inner, String> = $parse;
                parse(&text).map($name)
            }
        }
    };
}

from_text!(Address(Endpoint), |text| text
    .parse()
    .map_err(|error: iogate_net::transport::EndpointError| error.to_string()));
from_text!(Bytes(u64), |text| settings::bytes(text).map_err(|error| error.to_string()));
from_text!(Time(Duration), time);
from_text!(Ids((u32, u32)), |text| {
    text.split_once(':')
        .and_then(|(uid, gid)| Some((uid.parse().ok()?, gid.parse().ok()?)))
        .ok_or_else(|| format!("expected UID:GID, two numbers, found `{text}`"))
});

from_text!(SocketMode(u32), |text| u32::from_str_radix(text, 8)
    .ok()
    .filter(|mode| *mode <= 0o777)
    .ok_or_else(|| format!("expected permissions as in \"0660\", found `{text}`")));

/// A user of this system, by name or by number.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(untagged, expecting = "expected a user's name or number")]
pub(crate) enum User {
    Number(u32),
    Name(String),
}

fn time(text: &str) -> Result<Duration, String> {
    settings::nanoseconds(text).map(Duration::from_nanos).map_err(|error| error.to_string())
}
