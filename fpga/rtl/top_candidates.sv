// Keeps the 64 largest logits of one lane in falling order, ties to the lower target id.
//
// What:       Each port's logits meet a threshold, the 64th best so far, in a register stage of
//             their own: one that cannot stay is dropped without waiting for anyone. The others go
//             through a tree of two-way arbiters into a sorted array. Rows of a head ascend with
//             their target ids, so the id alone breaks ties as the golden function's sort does.
// Latency:    log2(PORTS) + 2 cycles from a logit to its place.
// Throughput: one insertion a cycle (from one port alone, if there are others: every second
//             cycle); one dropped logit a cycle and port.
// Golden:     fpga/golden/head.py::top_candidates
`default_nettype none

module top_candidates #(
    parameter int PORTS = 4,    // memory ports that deliver logits: a power of two up to 32
    parameter int ID_BITS = 24  // bits of a target id that are kept, 1..32
) (
    input  wire                 clk,
    input  wire                 rst,
    input  wire                 start,          // pulse (start_head): forget everything
    input  wire                 active,         // lane takes part in this HEAD; else start is ignored
    input  wire  [6:0]          num_candidates, // operand of HEAD, 1..64, taken with start
    // logits of port p at [p*32 +: 32]
    input  wire  [PORTS-1:0]    in_valid,
    output wire  [PORTS-1:0]    in_ready,
    input  wire  [PORTS*32-1:0] in_logit,       // signed, -(2^31 - 1) .. 2^31 - 1
    input  wire  [PORTS*32-1:0] in_id,          // target id, below 2^ID_BITS
    input  wire  [PORTS-1:0]    port_done,      // pulse: port's last logit was taken (done_matrix)
    output wire                 settled,        // every logit taken so far is sorted in or dropped
    output logic                done,           // pulse: settled after every port's port_done
    // candidates, best first
    output wire  [6:0]          held,           // how many: min(num_candidates, logits seen)
    input  wire  [5:0]          rd_index,
    output logic [31:0]         rd_logit,       // one cycle after rd_index
    output logic [31:0]         rd_id
);
  localparam int SIZE = 64;
  localparam int KEY = 32 + ID_BITS;

  // A key is larger when its candidate is better. 0 is worse than any: an empty place.
  function automatic logic [KEY-1:0] key_of(input logic [31:0] logit_i,
                                            input logic [ID_BITS-1:0] id_i);
`ifdef BUG_TOP_CANDIDATES_1
    key_of = {~logit_i[31], logit_i[30:0], id_i};
`else
    key_of = {~logit_i[31], logit_i[30:0], ~id_i};
`endif
  endfunction

  wire clear = start && active;

  // ---- Filter: one register for each port, then nodes PORTS-1 .. 2*PORTS-2 of the tree. Node n
  // takes from nodes 2n+1 and 2n+2; node 0 is inserted at once. The others load only when they are
  // empty, every second cycle at best: two of them keep their parent busy.
  localparam int NODES = 2 * PORTS - 1;
  localparam int LEAF = PORTS - 1;
  (* mem2reg *)
  logic [KEY-1:0]   place[0:SIZE-1];   // sorted, best first
  (* mem2reg *)
  logic [KEY-1:0]   seen_key[0:PORTS-1];
  (* mem2reg *)
  logic [KEY-1:0]   node_key[0:NODES-1];
  logic [PORTS-1:0] seen;              // a logit waits for its comparison with the threshold
  logic [NODES-1:0] node_valid;
  logic [NODES-1:0] turn;              // node takes from 2n+2 first when it has the choice
  wire  [PORTS-1:0] keep;
  wire  [NODES-1:0] room;              // node can load
  wire  [NODES-1:0] take;              // node is taken from
  wire  [NODES-1:0] from_high;         // ... and what it loads comes from 2n+2
  wire  [KEY-1:0]   threshold = place[SIZE-1];
  wire              busy = in_valid != '0 || seen != '0 || node_valid != '0;

  for (genvar p = 0; p < PORTS; p++) begin : g_filter
    // The threshold only rises: what is not above it now never will be.
`ifdef BUG_TOP_CANDIDATES_2
    assign keep[p] = seen_key[p][KEY-1:ID_BITS] > threshold[KEY-1:ID_BITS];
`else
    assign keep[p] = seen_key[p] > threshold;
`endif
    assign in_ready[p] = !seen[p] || room[LEAF+p] || !keep[p];
  end
  for (genvar n = 0; n < NODES; n++) begin : g_node
    assign room[n] = n == 0 || !node_valid[n];
    if (n < LEAF) begin : g_inner
      assign from_high[n] = node_valid[2*n+2] && (turn[n] || !node_valid[2*n+1]);
      assign take[2*n+2]  = room[n] && from_high[n];
      assign take[2*n+1]  = room[n] && node_valid[2*n+1] && !from_high[n];
    end else begin : g_leaf
      assign from_high[n] = 1'b0;
    end
  end
  assign take[0] = node_valid[0];

  always_ff @(posedge clk) begin
    if (rst || clear) begin
      seen <= '0;
      node_valid <= '0;
      turn <= '0;
    end else if (busy) begin
      for (int p = 0; p < PORTS; p++) begin
        if (in_ready[p]) seen[p] <= in_valid[p];
        if (room[LEAF+p]) node_valid[LEAF+p] <= seen[p] && keep[p];
        else if (take[LEAF+p]) node_valid[LEAF+p] <= 1'b0;
      end
      for (int n = 0; n < LEAF; n++) begin
        if (room[n]) node_valid[n] <= node_valid[2*n+1] || node_valid[2*n+2];
        else if (take[n]) node_valid[n] <= 1'b0;
        if (room[n]) turn[n] <= !from_high[n];
      end
    end
    if (busy) begin
      for (int p = 0; p < PORTS; p++) begin
        if (in_ready[p]) seen_key[p] <= key_of(in_logit[p*32+:32], in_id[p*32+:ID_BITS]);
        if (room[LEAF+p]) node_key[LEAF+p] <= seen_key[p];
      end
      for (int n = 0; n < LEAF; n++)
        if (room[n]) node_key[n] <= from_high[n] ? node_key[2*n+2] : node_key[2*n+1];
    end
  end

  // ---- Sorted array: everything worse than the new one moves down a place.
  wire            insert = node_valid[0];
  wire [KEY-1:0]  fresh = node_key[0];
  wire            stays = fresh > threshold;
  always_ff @(posedge clk) begin
    if (rst || clear) begin
      for (int i = 0; i < SIZE; i++) place[i] <= '0;
    end else if (insert) begin
      if (fresh > place[0]) place[0] <= fresh;
      for (int i = 1; i < SIZE; i++)
        if (fresh > place[i]) place[i] <= fresh > place[i-1] ? place[i-1] : fresh;
    end
  end

  // ---- Count, end, read port.
  logic [6:0]       count;     // places in use
  logic [6:0]       limit;     // num_candidates of this HEAD
  logic [PORTS-1:0] finished;  // port has had its port_done
  logic             open;      // a HEAD is in progress
  assign settled = seen == '0 && node_valid == '0;
  assign held    = count < limit ? count : limit;

  always_ff @(posedge clk) begin
    done <= 1'b0;
    if (rst) begin
      open  <= 1'b0;
      count <= 7'd0;
    end else if (clear) begin
      open     <= 1'b1;
      count    <= 7'd0;
      limit    <= num_candidates;
      finished <= '0;
    end else begin
      if (insert && stays && !count[6]) count <= count + 7'd1;
      if (open) finished <= finished | port_done;
      if (open && settled && (&finished)) begin
        open <= 1'b0;
        done <= 1'b1;
      end
    end
  end
  always_ff @(posedge clk) begin
    rd_logit <= place[rd_index][KEY-1:ID_BITS] ^ 32'h80000000;
    rd_id    <= 32'(ID_BITS'(~place[rd_index][ID_BITS-1:0]));
  end

  wire unused = &{1'b0, in_id, take, turn};

`ifdef HETERO_ASSERT
  always_ff @(posedge clk) begin
    if (!rst && !clear && in_valid != '0) begin
      assert (open) else $fatal(1, "top_candidates: a logit came outside of a HEAD");
    end
    if (!rst && clear) begin
      assert (settled) else $fatal(1, "top_candidates: started with logits under way");
    end
  end
`endif
`ifdef HETERO_COVER
  logic [31:0] cov_insert;
  logic [31:0] cov_stall;
  always_ff @(posedge clk) begin
    if (rst) begin
      cov_insert <= 32'd0;
      cov_stall  <= 32'd0;
    end else begin
      if (insert) cov_insert <= cov_insert + 32'd1;
      if ((in_valid & ~in_ready) != '0) cov_stall <= cov_stall + 32'd1;
    end
  end
`endif
`ifndef SYNTHESIS
  if (PORTS < 1 || PORTS > 32 || (PORTS & (PORTS - 1)) != 0) begin : g_check_ports
    initial $fatal(1, "top_candidates: PORTS = %0d must be a power of two up to 32", PORTS);
  end
  if (ID_BITS < 1 || ID_BITS > 32) begin : g_check_id
    initial $fatal(1, "top_candidates: ID_BITS = %0d must be 1 to 32", ID_BITS);
  end
`endif
endmodule

`default_nettype wire
