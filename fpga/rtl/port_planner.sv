// Makes of a stream command (the same for all ports) this port's read command and tag.
//
// What:       Weights: the offset in this port's share. KV: local range, first and last beat, granules
//             to skip; position j lies on port j mod PORTS at local index j div PORTS.
//             An empty range gives a tag (an event) and no read.
// Latency:    7 cycles.
// Throughput: one command a cycle.
// Golden:     tests/support/stream_model.py
//
// Stream command, low bits first:  kind[2:0] lanes[LANES-1:0] last[0] offset[31:0] (beats) beats[31:0]
//   lo[19:0] hi[19:0] record_bytes[15:0] num_kv_heads[7:0] half[0] (granule of 32 bytes)
// Tag, low bits first:  kind[2:0] lanes[LANES-1:0] last[0] empty[0] beats[31:0] skip[7:0] count[19:0] pos[19:0]
`default_nettype none

module port_planner #(
    parameter int PORTS = 1, // memory ports: 1, 2, 4 .. 32
    parameter int LANES = 1, // lanes: 1, 2, 4, 8
    parameter int TAGS = 64  // stream commands ahead, a power of two, 16 or more
) (
    input  wire                    clk,
    input  wire                    rst,
    input  wire                    clear,
    input  wire  [7:0]             port_index,      // constant
    input  wire  [63:0]            cfg_weight_addr, // byte addresses, multiples of 64
    input  wire  [63:0]            cfg_kv_addr,
    input  wire                    s_valid,
    output logic                   s_ready,
    input  wire  [133+LANES-1:0]   s_command,
    output logic                   cmd_valid,       // to port_reader
    input  wire                    cmd_ready,
    output logic [63:0]            cmd_addr,
    output logic [31:0]            cmd_beats,
    output logic                   tag_valid,       // to stream_dispatch
    input  wire                    tag_ready,
    output logic [85+LANES-1:0]    tag,
    output logic                   idle             // nothing in work or waiting
);
  localparam int PORT_BITS = $clog2(PORTS);
  localparam int TAG_BITS = 85 + LANES;
  localparam int KEEP_BITS = 4 + LANES;  // kind, lanes, last: what only travels along
  localparam int LEVEL_BITS = $clog2(TAGS) + 1;
  localparam [2:0] KIND_SCALE = 3'd3;    // the kinds from here on are of the KV cache
  localparam int STEPS = 6;              // pipeline registers before the FIFOs

  // A pipeline without stalls: a command enters when its tag surely finds room behind it. One tag is
  // kept back because the dispatcher takes a tag while its read still waits in the other FIFO.
  logic [LEVEL_BITS-1:0] room;
  logic [STEPS-1:0]      step;  // step[i]: registers of step i hold a command
  wire                   accept = s_valid && s_ready;

  assign s_ready = room != '0;
  assign idle    = room == LEVEL_BITS'(TAGS - 2) && !cmd_valid;

  always_ff @(posedge clk) begin
    if (rst || clear) begin
      room <= LEVEL_BITS'(TAGS - 2);
      step <= '0;
    end else begin
      room <= room - LEVEL_BITS'(accept) + LEVEL_BITS'(tag_valid && tag_ready);
      step <= {step[STEPS-2:0], accept};
    end
  end

  // ---- step 0: the command; local index of the first position at or after lo, and after hi
  logic [KEEP_BITS-1:0] keep0, keep1, keep2, keep3, keep4, keep5;
  logic [31:0] offset0, offset1, offset2, offset3, offset4;
  logic [31:0] beats0, beats1, beats2, beats3, beats4;
  logic [15:0] record0;
  logic [7:0]  heads0;
  logic        half0, half1, half2;
  logic [19:0] first0, end0;  // local indices

  wire [31:0] s_offset = s_command[KEEP_BITS+:32];
  wire [31:0] s_beats = s_command[KEEP_BITS+32+:32];
  wire [19:0] s_lo = s_command[KEEP_BITS+64+:20];
  wire [19:0] s_hi = s_command[KEEP_BITS+84+:20];
  wire [20:0] to_next = 21'(PORTS - 1) - 21'(port_index);
  wire [20:0] lo_up = 21'(s_lo) + to_next;
  wire [20:0] hi_up = 21'(s_hi) + to_next;

  always_ff @(posedge clk) begin
    if (accept) begin
      keep0   <= s_command[KEEP_BITS-1:0];
      offset0 <= s_offset;
      beats0  <= s_beats;
      first0  <= 20'(lo_up >> PORT_BITS);
      end0    <= 20'(hi_up >> PORT_BITS);
      record0 <= s_command[KEEP_BITS+104+:16];
      heads0  <= s_command[KEEP_BITS+120+:8];
      half0   <= s_command[KEEP_BITS+128];
    end
  end

  // ---- steps 1, 2: products (registered twice, as DSP slices like it)
  logic [35:0] first_byte1, first_byte2, end_byte1, end_byte2;
  logic [27:0] count1, count2;
  logic [19:0] first1, first2, first3, first4;
  logic        empty1, empty2;

  wire [19:0] positions0 = end0 - first0;

  always_ff @(posedge clk) begin
    if (step[0]) begin
      keep1       <= keep0;
      offset1     <= offset0;
      beats1      <= beats0;
      half1       <= half0;
      first1      <= first0;
      empty1      <= end0 == first0;
      first_byte1 <= 36'(first0) * 36'(record0);
      end_byte1   <= 36'(end0) * 36'(record0);
      count1      <= 28'(positions0) * 28'(heads0);
    end
    if (step[1]) begin
      keep2       <= keep1;
      offset2     <= offset1;
      beats2      <= beats1;
      half2       <= half1;
      first2      <= first1;
      empty2      <= empty1;
      first_byte2 <= first_byte1;
      end_byte2   <= end_byte1;
      count2      <= count1;
    end
  end

  // ---- step 3: first beat and the beat behind the last; granules before the range in the first
  logic [31:0] first_beat3, end_beat3;
  logic [7:0]  skip3, skip4;
  logic [19:0] count3, count4;
  logic        kv3, empty3, empty4;
  wire [36:0]  end_up2 = {1'b0, end_byte2} + 37'd63;

  always_ff @(posedge clk) begin
    if (step[2]) begin
      keep3       <= keep2;
      offset3     <= offset2;
      beats3      <= beats2;
      first3      <= first2;
      kv3         <= keep2[2:0] >= KIND_SCALE;
      empty3      <= keep2[2:0] >= KIND_SCALE && empty2;
      first_beat3 <= {2'd0, first_byte2[35:6]};
      end_beat3   <= {1'b0, end_up2[36:6]};
      count3      <= keep2[2:0] >= KIND_SCALE ? count2[19:0] : beats2[19:0];
`ifdef BUG_PORT_PLANNER_1
      skip3       <= 8'd0;
`else
      skip3       <= keep2[2:0] == KIND_SCALE ? {5'd0, first_byte2[5:3]}
                     : {7'd0, half2 && keep2[2:0] > KIND_SCALE && first_byte2[5]};
`endif
    end
  end

  // ---- step 4: beats and offset; step 5: address
  logic        weights4;
  logic [63:0] addr5;
  logic [31:0] beats5;
  logic [19:0] first5, count5;
  logic [7:0]  skip5;
  logic        empty5;

  always_ff @(posedge clk) begin
    if (step[3]) begin
      keep4    <= keep3;
      offset4  <= offset3 + (kv3 ? first_beat3 : 32'd0);
      beats4   <= empty3 ? 32'd0 : kv3 ? end_beat3 - first_beat3 : beats3;
      first4   <= first3;
      count4   <= count3;
      skip4    <= empty3 ? 8'd0 : skip3;
      empty4   <= empty3;
      weights4 <= !kv3;
    end
    if (step[4]) begin
      keep5  <= keep4;
      addr5  <= (weights4 ? cfg_weight_addr : cfg_kv_addr) + {26'd0, offset4, 6'd0};
      beats5 <= beats4;
      first5 <= first4;
      count5 <= count4;
      skip5  <= skip4;
      empty5 <= empty4;
    end
  end

  wire [19:0] pos5 = 20'(28'(first5) << PORT_BITS) | 20'(port_index);

  // ---- what waits: reads for port_reader, tags for stream_dispatch
  wire                  cmd_room;
  wire                  tag_room;
  wire [LEVEL_BITS-1:0] cmd_level;
  wire [LEVEL_BITS-1:0] tag_level;

  stream_fifo #(
      .WIDTH(96),
      .DEPTH(TAGS)
  ) u_commands (
      .clk      (clk),
      .rst      (rst),
      .clear    (clear),
      .in_valid (step[5] && !empty5),
      .in_ready (cmd_room),
      .in_data  ({beats5, addr5}),
      .out_valid(cmd_valid),
      .out_ready(cmd_ready),
      .out_data ({cmd_beats, cmd_addr}),
      .level    (cmd_level)
  );

  stream_fifo #(
      .WIDTH(TAG_BITS),
      .DEPTH(TAGS)
  ) u_tags (
      .clk      (clk),
      .rst      (rst),
      .clear    (clear),
      .in_valid (step[5]),
      .in_ready (tag_room),
      .in_data  ({pos5, count5, skip5, beats5, empty5, keep5}),
      .out_valid(tag_valid),
      .out_ready(tag_ready),
      .out_data (tag),
      .level    (tag_level)
  );

  // verilator lint_off UNUSED
  wire unused = cmd_room | tag_room | |cmd_level | |tag_level | |count2[27:20]
                | |first_byte2[2:0] | |end_up2[5:0];
  // verilator lint_on UNUSED

`ifdef HETERO_ASSERT
  always_ff @(posedge clk) begin
    if (!rst && step[5]) begin
      assert (cmd_room && tag_room) else $fatal(1, "port_planner: no room for a command");
      assert (empty5 || beats5 != 32'd0) else $fatal(1, "port_planner: a read of nothing");
    end
    if (!rst && step[2])
      assert (keep2[2:0] < KIND_SCALE || count2[27:20] == 8'd0)
      else $fatal(1, "port_planner: 2^20 granules or more on a port");
  end
`endif
`ifndef SYNTHESIS
  if (PORTS < 1 || PORTS > 32 || (PORTS & (PORTS - 1)) != 0) begin : g_check_ports
    initial $fatal(1, "port_planner: PORTS = %0d must be a power of two, 1..32", PORTS);
  end
  if (TAGS < 16 || (TAGS & (TAGS - 1)) != 0) begin : g_check_tags
    initial $fatal(1, "port_planner: TAGS = %0d must be a power of two, 16 or more", TAGS);
  end
`endif
endmodule

`default_nettype wire
