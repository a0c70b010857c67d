//! Judgement: pure functions of what a run recorded and of the plan's judgement part.

pub mod judgement;
pub mod rubric;
