//! The interconnects of the GPUs, and the time of an all-reduce over them by formula.

use serde::Serialize;

/// GPUs of a node.
pub(super) const NODE_GPUS: usize = 8;

/// A network: how fast bytes go, and how long a step of a collective takes at least.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(super) struct Wire {
    pub(super) name: &'static str,
    /// GB/s in one direction by the data sheet: of a GPU on NVLink, of a node on a network.
    pub(super) sheet_gb_per_s: f64,
    /// GB/s that collectives reach (the "bus bandwidth" of nccl-tests).
    pub(super) gb_per_s: f64,
    /// Latency of a step from one GPU or node to the next.
    pub(super) hop_us: f64,
    pub(super) source: &'static str,
}

/// Fixed cost of a collective: its kernel's start and the agreement of its channels.
/// NCCL's `baseLat` of rings is 8.4 us; a graph node's start comes on top.
pub(super) const START_US: f64 = 10.0;
/// Multiprocessors that a collective occupies: one for each channel; a usual number.
pub(super) const CHANNELS: f64 = 16.0;

const NCCL_NVLINK: &str = "sheet: NVIDIA; GB/s: NVIDIA/nccl issue 527, one p4d (230.8); hop: NCCL \
                           src/graph/tuning.cc, ring, Simple";
const HOPPER_NVLINK: &str = "sheet: NVIDIA; GB/s: the A100's 77 % of the sheet (NVLS is off: with \
                             it 476, NVIDIA/nccl-tests issue 290); hop: as A100";
const P4D: &str = "sheet: AWS, 4 x 100 Gb/s; GB/s: NVIDIA/nccl issue 527, four nodes (29.6); hop: \
                   aws-ofi-nccl, `latency` of p4d";
const P5: &str = "sheet: AWS, 32 x 100 Gb/s; GB/s: 75 % of it, a guess; hop: aws-ofi-nccl, \
                  `latency` of p5";
const P5EN: &str = "sheet: AWS, 16 x 200 Gb/s; GB/s: 75 % of it, a guess; hop: aws-ofi-nccl, \
                    `latency` of p5en";
const IB: &str = "sheet: NVIDIA, a NIC for each GPU; GB/s: 92 % (46 of 50 a NIC, NVIDIA/nccl-tests \
                  issue 290); hop: NCCL src/graph/tuning.cc, network, Simple";

const fn wire(
    name: &'static str,
    sheet_gb_per_s: f64,
    gb_per_s: f64,
    hop_us: f64,
    source: &'static str,
) -> Wire {
    Wire { name, sheet_gb_per_s, gb_per_s, hop_us, source }
}

/// A kind of machine.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(super) struct Machine {
    pub(super) gpu: &'static str,
    pub(super) nvlink: Wire,
    pub(super) efa: Wire,
    pub(super) infiniband: Wire,
}

/// The machines, by GPU.
pub(super) const MACHINES: [Machine; 3] = [
    Machine {
        gpu: "a100",
        nvlink: wire("NVLink 3", 300.0, 230.0, 3.4, NCCL_NVLINK),
        efa: wire("EFA of p4d", 50.0, 30.0, 75.0, P4D),
        infiniband: wire("InfiniBand HDR", 200.0, 184.0, 14.0, IB),
    },
    Machine {
        gpu: "h100",
        nvlink: wire("NVLink 4", 450.0, 345.0, 3.4, HOPPER_NVLINK),
        efa: wire("EFA of p5", 400.0, 300.0, 75.0, P5),
        infiniband: wire("InfiniBand NDR", 400.0, 368.0, 14.0, IB),
    },
    Machine {
        gpu: "h200",
        nvlink: wire("NVLink 4", 450.0, 345.0, 3.4, HOPPER_NVLINK),
        efa: wire("EFA of p5en", 400.0, 300.0, 35.0, P5EN),
        infiniband: wire("InfiniBand NDR", 400.0, 368.0, 14.0, IB),
    },
];

/// Ranks, and what connects them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Fabric {
    pub(super) ranks: usize,
    pub(super) nvlink: Wire,
    /// Between nodes.
    pub(super) network: Wire,
}

/// Milliseconds of one all-reduce, by algorithm.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(super) struct Times {
    /// One ring through all ranks, node by node.
    pub(super) ring: f64,
    /// A chain within each node, a double binary tree over the nodes.
    pub(super) tree: f64,
}

impl Times {
    /// The time of NCCL's choice: the faster of ring and tree.
    pub(super) fn chosen(&self) -> f64 {
        self.ring.min(self.tree)
    }
}

impl Fabric {
    /// Nodes.
    pub(super) fn nodes(&self) -> usize {
        self.ranks.div_ceil(NODE_GPUS)
    }

    /// Times of an all-reduce of so many bytes; 0 for one rank.
    pub(super) fn all_reduce(&self, bytes: f64) -> Times {
        let (ranks, nodes) = (self.ranks as f64, self.nodes() as f64);
        let local = ranks / nodes;
        if self.ranks <= 1 {
            return Times { ring: 0.0, tree: 0.0 };
        }
        let us = |bytes: f64, gb_per_s: f64| bytes / gb_per_s / 1e3;
        let (near, far) = (&self.nvlink, &self.network);
        let slowest = if nodes > 1.0 { near.gb_per_s.min(far.gb_per_s) } else { near.gb_per_s };
        let depth = nodes.log2().ceil();
        let far_hops = 2.0 * (nodes - 1.0);
        let near_hops = 2.0 * (ranks - 1.0) - far_hops;
        let ring = near_hops * near.hop_us
            + far_hops * far.hop_us
            + us(2.0 * (ranks - 1.0) / ranks * bytes, slowest);
        let tree =
            2.0 * ((local - 1.0) * near.hop_us + depth * far.hop_us) + us(2.0 * bytes, slowest);
        let ms = |us: f64| (START_US + us) / 1e3;
        Times { ring: ms(ring), tree: ms(tree) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fabric(ranks: usize) -> Fabric {
        let wire = |gb_per_s: f64, hop_us: f64| Wire {
            name: "",
            sheet_gb_per_s: 0.0,
            gb_per_s,
            hop_us,
            source: "",
        };
        Fabric { ranks, nvlink: wire(200.0, 2.0), network: wire(50.0, 20.0) }
    }

    fn close(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-9
    }

    /// By hand. Eight ranks: 14 steps of 2 us, 7/4 of 8 MB at 200 GB/s = 70 us, 10 us to start.
    #[test]
    fn one_node_by_hand() {
        let times = fabric(8).all_reduce(8e6);
        assert!(close(times.ring, 0.108), "{times:?}");
        // The chain of a node has the ring's steps; all 16 MB up and down: 80 us.
        assert!(close(times.tree, 0.118), "{times:?}");
        assert!(close(times.chosen(), 0.108));
    }

    /// By hand: 4 nodes of 8, 8 MB.
    #[test]
    fn four_nodes_by_hand() {
        let times = fabric(32).all_reduce(8e6);
        // 56 steps of 2 us, 6 of 20, 31/16 of 8 MB at 50 GB/s = 310 us, 10 to start.
        assert!(close(times.ring, 0.552), "{times:?}");
        // 14 steps of 2 us, 4 of 20, 16 MB at 50 GB/s = 320 us.
        assert!(close(times.tree, 0.438), "{times:?}");
    }

    #[test]
    fn one_rank_has_nothing_to_say() {
        assert_eq!(fabric(1).all_reduce(8e6).chosen(), 0.0);
    }

    #[test]
    fn every_gpu_has_a_machine_and_no_wire_beats_its_sheet() {
        for name in device::Gpu::NAMES {
            let machine = MACHINES.iter().find(|machine| machine.gpu == name).expect(name);
            for wire in [machine.nvlink, machine.efa, machine.infiniband] {
                assert!(wire.gb_per_s < wire.sheet_gb_per_s && !wire.source.is_empty(), "{wire:?}");
            }
        }
    }
}
