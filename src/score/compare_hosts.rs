//! In what the machines of candidates differ beside the candidates themselves: what makes a comparison uneven.
//!
//! Platform defaults are legitimate, but a reader must see them.

use serde_json::Value;

use super::scorecard::PlatformCard;

/// What is compared: its name for the reader, and the facts that tell it, the first one known counts.
const ASPECTS: [(&str, &[&str]); 8] = [
    ("GPU", &["gpu.names", "gpu.name", "gpu.model", "gpu.0.name", "gpu.pci_ids"]),
    ("driver", &["nvidia.driver_version", "gpu.driver", "driver.version"]),
    ("CUDA", &["cuda.driver_version", "cuda.version", "cuda.toolkit_version", "torch.cuda_version"]),
    ("NCCL", &["nccl.version", "torch.nccl_version"]),
    ("PyTorch", &["torch.version"]),
    ("image", &["image.digest", "container.image", "image"]),
    ("kernel", &["os.kernel"]),
    ("CPU", &["cpu.model"]),
];

/// What a platform's first endpoint says about an aspect.
pub(crate) fn aspects(card: &PlatformCard) -> Vec<(&'static str, Option<String>)> {
    let facts = card.environment.values().next();
    ASPECTS
        .iter()
        .map(|(name, keys)| {
            let value = facts.and_then(|f| keys.iter().find_map(|k| f.get(*k)));
            (*name, value.and_then(text))
        })
        .collect()
}

/// A fact as text; `None` where it says that there is none.
pub(crate) fn text(value: &Value) -> Option<String> {
    match value {
        Value::Null => None,
        Value::String(s) => Some(s.clone()),
        Value::Array(items) => {
            let mut items: Vec<String> = items.iter().filter_map(text).collect();
            items.dedup();
            (!items.is_empty()).then(|| items.join(", "))
        }
        other => Some(other.to_string()),
    }
}

/// One sentence for each aspect in which candidates differ.
pub(crate) fn warnings(cards: &[PlatformCard]) -> Vec<String> {
    let seen: Vec<_> = cards.iter().map(|c| (c, aspects(c))).collect();
    let mut out = Vec::new();
    for (i, (name, _)) in ASPECTS.iter().enumerate() {
        let values: Vec<(&str, &str)> = seen
            .iter()
            .filter_map(|(c, a)| a[i].1.as_deref().map(|value| (c.title.as_str(), value)))
            .collect();
        if values.windows(2).any(|w| w[0].1 != w[1].1) {
            let each: Vec<String> = values.iter().map(|(title, value)| format!("{title}: {value}")).collect();
            out.push(format!("candidates differ in {name} ({})", each.join("; ")));
        }
    }
    out
}
