"""First alarms of rlwatch and rldoctor (PyPI) on the runs of a log, as JSON for `bun run diagnose --rates`.

Run: pip install rlwatch==0.5.1 rldoctor==0.2.0 pyarrow
     python bench/peers/alarms.py --logs logs.parquet > alarms.json
Both have their default thresholds. rlwatch sees each update. rldoctor looks every 5 updates (its default is every 25), and begins at the
60th update. An alarm is the index of an update in its run, or null if there is none.
"""

import argparse
import json
import sys
from collections import defaultdict

import pyarrow.parquet
from rl_doctor import Severity
from rl_doctor.live import LiveMonitor
from rlwatch.config import load_config
from rlwatch.detectors import DetectorSuite

# Bunraku's name of a metric, by rldoctor's name.
DOCTOR = {
    "reward": "train/reward_mean",
    "reward_std": "train/in_group_std",
    "frac_reward_zero_std": "train/zero_std_groups",
    "entropy": "train/entropy",
    "grad_norm": "train/grad_norm",
    "kl": "loss/kl",
    "clip_ratio/high_mean": "loss/clip_fraction_high",
    "policy_loss": "loss/policy",
    "learning_rate": "train/learning_rate",
    "completions/mean_length": "train/reply_tokens",
}


def first_alarms(name: str, alarms: list[tuple[int, bool]]) -> dict[str, int | None]:
    """alarms: for each alarm, the index of the alarm's update (ascending), and whether the alarm is critical."""
    return {
        f"{name}, warning or critical": next((index for index, _ in alarms), None),
        f"{name}, critical": next((index for index, is_critical in alarms if is_critical), None),
    }


def rlwatch(updates: list[dict]) -> dict[str, int | None]:
    suite = DetectorSuite(load_config(None))
    alarms = []
    for index, update in enumerate(updates):
        alerts = suite.check_step(
            index,
            entropy=update["train/entropy"],
            kl_divergence=update["loss/kl"],
            reward_mean=update["train/reward_mean"],
            reward_std=update["train/in_group_std"],
            loss=update["loss/policy"],
            grad_norm=update["train/grad_norm"],
        )
        alarms += [(index, alert.severity == "critical") for alert in alerts]
    return first_alarms("rlwatch", alarms)


def rldoctor(updates: list[dict]) -> dict[str, int | None]:
    monitor = LiveMonitor(config={"algorithm": "grpo"}, check_every=5, on_finding=lambda finding: None)
    alarms = []
    for index, update in enumerate(updates):
        metrics = {name: update[ours] for name, ours in DOCTOR.items() if update[ours] is not None}
        alarms += [(index, finding.severity >= Severity.CRITICAL) for finding in monitor.log(metrics, step=index)]
    return first_alarms("rldoctor", alarms)


parser = argparse.ArgumentParser()
parser.add_argument("--logs", required=True)
runs: dict[str, list[dict]] = defaultdict(list)
for row in pyarrow.parquet.read_table(parser.parse_args().logs).to_pylist():
    runs[row["run"]].append(row)
alarms: dict[str, dict[str, int | None]] = defaultdict(dict)
for run, updates in runs.items():
    for name, index in {**rlwatch(updates), **rldoctor(updates)}.items():
        alarms[name][run] = index
json.dump(alarms, sys.stdout)
