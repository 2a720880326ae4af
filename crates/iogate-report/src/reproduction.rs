//! A page that sets published figures beside ours: in Markdown for the repository, in HTML with pictures.

use maud::{Markup, html};

use crate::Table;
use crate::html::{inline, shell};

/// The reproduction of one paper.
#[derive(Clone, Debug)]
pub struct Page {
    /// Which paper.
    pub title: String,
    /// What holds for all of it: a paragraph each.
    pub notes: Vec<String>,
    /// One for each figure or table.
    pub sections: Vec<Section>,
    /// The program that made it, with its version.
    pub program: String,
}

/// Pictures, each with its caption.
pub type Pictures = Vec<(String, Markup)>;

/// One published figure or table, and ours.
#[derive(Clone, Debug)]
pub struct Section {
    /// Which figure, and what it is about.
    pub title: String,
    /// The scenarios that it comes from, if it does from any.
    pub scenarios: Vec<String>,
    /// What the paper did and what it says.
    pub paper: String,
    /// The figures side by side, each table with a caption.
    pub tables: Vec<(String, Table)>,
    /// Pictures with their captions, for the HTML form.
    pub pictures: Pictures,
    /// What agrees, what differs, and why.
    pub verdict: String,
}

impl Page {
    /// As Markdown: everything but the pictures.
    pub fn markdown(&self) -> String {
        let mut out = format!("# {}\n\n", self.title);
        for note in &self.notes {
            out += &format!("{note}\n\n");
        }
        for section in &self.sections {
            out += &format!("## {}\n\n{}\n\n", section.title, section.paper);
            if !section.scenarios.is_empty() {
                out += &format!("Scenarios: {}.\n\n", names(&section.scenarios, |name| format!("`{name}`")));
            }
            for (caption, table) in &section.tables {
                if !caption.is_empty() {
                    out += &format!("{caption}\n\n");
                }
                out += &format!("{}\n", table.markdown());
            }
            if !section.verdict.is_empty() {
                out += &format!("**{}**\n\n", section.verdict);
            }
        }
        out.truncate(out.trim_end().len());
        out + "\n"
    }

    /// As a self-contained page.
    pub fn html(&self) -> String {
        let content = html! {
            @for note in &self.notes { p.soft { (inline(note)) } }
            @for section in &self.sections {
                h2 { (section.title) }
                p { (inline(&section.paper)) }
                @if !section.scenarios.is_empty() {
                    p.soft { "Scenarios: " (names(&section.scenarios, String::clone)) "." }
                }
                @for (caption, picture) in &section.pictures { p.soft { (caption) } (picture) }
                @for (caption, table) in &section.tables {
                    @if !caption.is_empty() { p.soft { (inline(caption)) } }
                    (table.html())
                }
                @if !section.verdict.is_empty() { p { b { (inline(&section.verdict)) } } }
            }
        };
        shell(&self.title, &[], &self.program, &content)
    }
}

fn names(scenarios: &[String], each: impl Fn(&String) -> String) -> String {
    scenarios.iter().map(each).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_have_the_figures_and_the_verdict() {
        let mut table = Table::new(["requests", "paper", "ours"]);
        table.row(["8 KiB", "155 s", "150 \u{b1} 1 s"]);
        let page = Page {
            title: "A paper".into(),
            notes: vec!["A note.".into()],
            sections: vec![Section {
                title: "Figure 7".into(),
                scenarios: vec!["two".into()],
                paper: "Two at once, with `aioli`.".into(),
                tables: vec![("Times".into(), table)],
                pictures: vec![("A picture".into(), html! { svg {} })],
                verdict: "Agrees.".into(),
            }],
            program: "iogate".into(),
        };
        let text = page.markdown();
        assert!(
            text.contains("| 8 KiB | 155 s | 150 \u{b1} 1 s |") && text.contains("**Agrees.**"),
            "{text}"
        );
        let html = page.html();
        assert!(
            html.contains("<svg>")
                && html.contains("<td>155 s</td>")
                && html.contains("<code>aioli</code>")
                && html.contains("Agrees."),
            "{html}"
        );
    }
}
