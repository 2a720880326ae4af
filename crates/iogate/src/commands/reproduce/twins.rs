//! TWINS.
use iogate_report::reproduction::Page;
use super::Lab;
use crate::commands::sim::PROGRAM;
use crate::failure::Failure;
pub(super) fn page(lab: &Lab<'_>) -> Result<Page, Failure> {
    for name in ["twins-direct", "twins-schedulers", "twins-below", "twins-below-direct", "twins-collective", "twins-variants", "twins-contention-direct", "twins-contention", "twins-two-applications-direct", "twins-two-applications", "twins-windows", "twins-server-windows", "twins-forwarders"] {
        lab.experiment(name)?;
    }
    Ok(Page { title: "TWINS".into(), notes: vec![], sections: vec![], program: PROGRAM.into() })
}
