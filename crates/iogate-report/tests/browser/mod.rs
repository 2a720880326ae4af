//! Pages as a browser draws them, where one is installed.

use std::process::Command;

use serde::Deserialize;

/// What a browser made of a page, in numbers.
#[derive(Debug, Deserialize)]
pub(crate) struct Drawn {
    /// Its title.
    pub(crate) title: String,
    /// Pictures of a reasonable size.
    pub(crate) pictures: u32,
    /// Shapes with a tip that have an area.
    pub(crate) blocks: u32,
    /// Whether pointing at one shows its tip.
    pub(crate) tip: bool,
    /// Whether it is wider than the window.
    pub(crate) wide: bool,
    /// Labels of a picture that lie on another of its labels.
    pub(crate) overlaps: u32,
    /// Whether there is a coloured table, and a cell has its colour.
    pub(crate) heat: bool,
}

const PROBE: &str = include_str!("probe.html");

/// Draws a page in a window of this width; `None` if there is no browser.
pub(crate) fn draw(page: &str, width: u32) -> Option<Drawn> {
    let browser = ["chromium", "chromium-browser", "google-chrome"].into_iter().find(|name| {
        Command::new(name).arg("--version").output().is_ok_and(|output| output.status.success())
    })?;
    let profile = tempfile::tempdir().unwrap();
    let probed = profile.path().join("page.html");
    std::fs::write(&probed, page.replace("</body>", PROBE)).unwrap();
    let output = Command::new(browser)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"])
        .args(["--disable-background-networking", "--disable-component-update", "--disable-sync"])
        .arg(format!("--user-data-dir={}", profile.path().join("profile").display()))
        .arg(format!("--window-size={width},1600"))
        .args(["--virtual-time-budget=2000", "--dump-dom"])
        .arg(format!("file://{}", probed.display()))
        .output()
        .unwrap();
    let dom = String::from_utf8_lossy(&output.stdout);
    let drawn = dom.split("<pre id=\"probe\">").nth(1).and_then(|rest| rest.split("</pre>").next());
    let drawn =
        drawn.unwrap_or_else(|| panic!("the probe did not run: {}", String::from_utf8_lossy(&output.stderr)));
    Some(
        serde_json::from_str(&drawn.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")).unwrap(),
    )
}
