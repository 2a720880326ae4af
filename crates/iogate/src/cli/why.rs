//! The flags of `iogate why`.

use clap::Args;

use super::ScenarioChoice;

/// Say who slows an application of a scenario down, by how much, and what to do
///
/// The run of the first seed, of each point. The servers' gates keep accounts: each instant in which an application has requests there is
/// divided by cause and by application (docs/why.md).
#[derive(Debug, Args)]
pub(crate) struct WhyArgs {
    #[command(flatten)]
    pub(crate) scenario: ScenarioChoice,

    /// Only these applications [default: all]; may be given several times
    #[arg(long = "app", value_name = "APP")]
    pub(crate) apps: Vec<String>,

    /// Run it again without this application, and say what the others gain; may be given several times
    #[arg(long = "counterfactual", value_name = "APP")]
    pub(crate) without: Vec<String>,

    /// As JSON
    #[arg(long)]
    pub(crate) json: bool,
}
