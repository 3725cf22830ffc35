`default_nettype none
// Program memory: loads the linked program of a PROGRAM buffer and answers two readers.
//
// What: after `load`, gathers the header beat at `load_addr`, checks magic and versions, then
//   gathers the instructions. Reads by planner and sequencer take one cycle.
// Latency: a cycle from a read address to its instruction.
// Throughput: one beat a cycle while loading.
// Golden: fpga/driver/buffers.py::decode_program_header
module program_store #(
    parameter int PORTS = 4,                   // a program linked for another number is refused
    parameter int PROGRAM_INSTRUCTIONS = 512,  // words of 512 bits held: the longest program
    parameter int VECTOR_WORDS = 16384,        // a program needing more vector memory is refused
    parameter int PC_BITS = 16                 // width of an instruction index
) (
    input  wire                 clk,
    input  wire                 rst,
    // loading
    input  wire                 load,        // pulse: load the program at load_addr
    input  wire  [63:0]         load_addr,   // byte address of the PROGRAM buffer
    output logic                load_done,   // pulse: finished, load_ok valid
    output logic                load_ok,     // magic, versions and sizes fit this card
    output logic [255:0]        artefact_sha,  // identity of the held artefact
    output logic [31:0]         embed_rows,    // rows of EMBED's matrix: valid token ids are below
    // gather on port 0
    output logic                g_valid,
    input  wire                 g_ready,
    output logic [63:0]         g_addr,
    output logic [15:0]         g_beats,
    input  wire                 gr_valid,
    input  wire  [511:0]        gr_data,
    input  wire                 gr_last,
    // read ports: data one cycle after the address
    input  wire  [PC_BITS-1:0]  planner_pc,
    output logic [511:0]        planner_word,
    input  wire  [PC_BITS-1:0]  sequencer_pc,
    output logic [511:0]        sequencer_word
);
    `include "registers.svh"
    `include "isa.svh"
    `include "tables.svh"
    `include "buffers.svh"
    localparam int INDEX_BITS = $clog2(PROGRAM_INSTRUCTIONS);
    localparam [1:0] S_IDLE = 2'd0, S_HEADER = 2'd1, S_BODY = 2'd2, S_DONE = 2'd3;

    logic [1:0] state;
    logic [31:0] index;
    logic [511:0] header;
    logic header_came, ended;
    wire [15:0] num_instructions = header[`PROGRAM_NUM_INSTRUCTIONS +: 16];

    // two copies, one for each reader
    logic [511:0] planner_memory [0:PROGRAM_INSTRUCTIONS-1];
    logic [511:0] sequencer_memory [0:PROGRAM_INSTRUCTIONS-1];
    wire write = state == S_BODY && gr_valid;
    always_ff @(posedge clk) begin
        if (write) begin
            planner_memory[index[INDEX_BITS-1:0]] <= gr_data;
            sequencer_memory[index[INDEX_BITS-1:0]] <= gr_data;
        end
        planner_word <= planner_memory[planner_pc[INDEX_BITS-1:0]];
        sequencer_word <= sequencer_memory[sequencer_pc[INDEX_BITS-1:0]];
    end

    wire header_ok = header[`PROGRAM_MAGIC +: 32] == `PROGRAM_MAGIC_VALUE
        && header[`PROGRAM_INTERFACE_VERSION +: 32] == `REG_INTERFACE_VERSION
        && header[`PROGRAM_ISA_VERSION +: 32] == `ISA_VERSION
        && header[`PROGRAM_ARITHMETIC_VERSION +: 32] == `ARITHMETIC_VERSION
        && header[`PROGRAM_NUM_INSTRUCTIONS +: 32] != 32'd0
        && header[`PROGRAM_NUM_INSTRUCTIONS +: 32] <= 32'(PROGRAM_INSTRUCTIONS)
        && header[`PROGRAM_VECTOR_WORDS +: 32] <= 32'(VECTOR_WORDS)
        && header[`PROGRAM_NUM_PORTS +: 32] == 32'(PORTS);

    assign g_addr = state == S_BODY ? load_addr + 64'd64 : load_addr;
    assign g_beats = state == S_BODY ? num_instructions : 16'd1;
    assign artefact_sha = header[`PROGRAM_SHA256_0 +: 256];

    always_ff @(posedge clk) begin
        load_done <= 1'b0;
        if (g_ready) g_valid <= 1'b0;
        case (state)
            S_IDLE: if (load) begin
                state <= S_HEADER;
                g_valid <= 1'b1;
                header_came <= 1'b0;
                load_ok <= 1'b0;
                embed_rows <= 32'd0;
            end
            S_HEADER: begin
                if (gr_valid) begin
                    header <= gr_data;
                    header_came <= 1'b1;
                end
                if (header_came) begin
                    state <= header_ok ? S_BODY : S_DONE;
                    g_valid <= header_ok;
                    index <= 32'd0;
                    ended <= 1'b0;
                end
            end
            S_BODY: if (gr_valid) begin
                index <= index + 32'd1;
                if (gr_data[7:0] == `OP_EMBED) embed_rows <= gr_data[`EMBED_NUM_ROWS +: 32];
                // planner and sequencer stop at END only: it must be the last one, and no other
                ended <= ended || gr_data[7:0] == `OP_END;
                if (gr_last) begin
`ifdef BUG_PROGRAM_STORE_1
                    load_ok <= !ended;
`else
                    load_ok <= !ended && gr_data[7:0] == `OP_END;
`endif
                    state <= S_DONE;
                end
            end
            default: begin
                load_done <= 1'b1;
                state <= S_IDLE;
            end
        endcase
        if (rst) begin
            state <= S_IDLE;
            g_valid <= 1'b0;
            load_ok <= 1'b0;
        end
    end
    wire unused = &{1'b0, planner_pc, sequencer_pc, header};
endmodule
`default_nettype wire
