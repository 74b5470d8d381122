//! The outcomes of one call, filled in by whoever learns them.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Notify;
use tokio::time::Instant;

use super::metrics::StreamMetrics;
use super::{Ack, PublishError};

type Outcome = Result<Ack, PublishError>;

/// One allocation a call, not a message.
pub(super) struct Batch {
    state: Mutex<State>,
    finished: Notify,
    began: Instant,
    metrics: Arc<StreamMetrics>,
}

struct State {
    outcomes: Vec<Option<Outcome>>,
    open: usize,
}

impl Batch {
    pub(super) fn new(count: usize, metrics: &Arc<StreamMetrics>) -> Arc<Self> {
        let state = State { outcomes: vec![None; count], open: count };
        Arc::new(Self {
            state: Mutex::new(state),
            finished: Notify::new(),
            began: Instant::now(),
            metrics: Arc::clone(metrics),
        })
    }

    /// The first outcome of a message stands.
    pub(super) fn settle(&self, index: usize, outcome: Outcome) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(place @ None) = state.outcomes.get_mut(index) {
            self.metrics.messages(&outcome).inc();
            *place = Some(outcome);
            state.open -= 1;
            if state.open == 0 {
                self.metrics.seconds.observe(self.began.elapsed().as_secs_f64());
                self.finished.notify_one();
            }
        }
    }

    /// Waits for the last outcome. Every message sees to it that it gets one.
    pub(super) async fn outcomes(&self) -> Vec<Outcome> {
        loop {
            if let Some(outcomes) = self.take_finished() {
                return outcomes;
            }
            self.finished.notified().await;
        }
    }

    fn take_finished(&self) -> Option<Vec<Outcome>> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        (state.open == 0).then(|| state.outcomes.drain(..).flatten().collect())
    }
}
