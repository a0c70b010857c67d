//! A look at a host through an agent, as a run would use it, without a run: facts, tools, the clock.

use std::{sync::Arc, time::Duration};

use super::{
    Place,
    clock::Reading,
    executor::{GRACE, place_name},
    link::{Link, Terms, random_word},
};
use crate::{
    outcome::Outcome,
    stage::host::{Run as Program, Tap},
    transport::Transport,
    wire::{self, Stream},
};

/// What was found.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Look {
    /// The folder that the agent made.
    pub folder: String,
    /// Seconds that the host's clock is ahead of ours, and how far off that may be; `None`: not asked, or no answer.
    pub offset: Option<(f64, f64)>,
    /// What the probe of facts printed, by line.
    pub facts: Vec<String>,
    /// What the script printed, by line.
    pub lines: Vec<String>,
}

/// Nothing is kept of what the programs print.
struct Nowhere;

impl Tap for Nowhere {
    fn output(&mut self, _: &str, _: Stream, _: &[u8]) {}
    fn artifact(&mut self, _: &str, _: &[u8], _: bool) {}
    fn takes(&mut self, _: &str, _: &str) -> bool {
        false
    }
}

/// Starts an agent at a place, asks for its facts, runs a script with this environment, and ends it.
///
/// # Errors
/// When there is no way to the host, or the agent cannot work there.
pub async fn look(
    place: &Place,
    transport: Arc<dyn Transport>,
    script: &str,
    env: &[(&str, String)],
) -> Result<Look, Outcome> {
    let terms = Terms {
        run: random_word()[..12].to_owned(),
        place: place_name(place),
        lease: Duration::from_secs(30),
        grace: GRACE,
        cpus: place.cpus,
        workdir: place.workdir.clone(),
        again: false,
    };
    let lasting = transport.lasting();
    let mut link = Link::open(transport, terms).await?;
    let looked = async {
        let mut look = Look::default();
        let host = &mut link.host;
        host.begin("doctor", Box::new(Nowhere)).await?;
        look.folder.clone_from(&host.folder);
        let probe = Program::probe("facts", "facts", &serde_json::json!({}));
        host.run(probe, |line| {
            if line.stream == Stream::Out {
                look.facts.push(line.text.to_owned());
            }
        })
        .await?;
        let mut program = Program::new("script", wire::Program::Shell(script.to_owned()));
        program.env = env.iter().map(|(k, v)| ((*k).to_owned(), v.clone())).collect();
        host.run(program, |line| {
            if line.stream == Stream::Out {
                look.lines.push(line.text.to_owned());
            }
        })
        .await?;
        host.finish().await?;
        Ok(look)
    }
    .await;
    let offset = if lasting { link.offset(1).read().await } else { None };
    let lost = link.lost();
    link.close().await;
    let offset = offset.map(|Reading { offset, error }| (offset, error));
    looked.map(|look| Look { offset, ..look }).map_err(|e| lost.unwrap_or(e))
}
