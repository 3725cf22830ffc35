# Block design for Zynq UltraScale+ and Kria: the packaged IP between the processing system's
# HPM0 (registers) and its four HP ports (memory). Gives draft_card.bit and draft_card.hwh for PYNQ.
#
#   vivado -mode batch -source fpga/vivado/block_design.tcl -tclargs BUILD_DIR
#
# After package_kernel.tcl. Follows UG1085 (HP ports) and UG994. NOT YET RUN under Vivado.
if {[llength $argv] != 1} { error "block_design.tcl: give the build folder" }
set build [file normalize [lindex $argv 0]]
source [file join $build settings.tcl]
if {$flow ne "zynq"} { error "block_design.tcl: $part is not a Zynq; use build_xclbin.sh" }
if {$num_ports > 4} { error "block_design.tcl: $num_ports ports, a Zynq has 4 HP ports" }

create_project -force -part $part draft_card [file join $build bd_project]
if {$board ne ""} { set_property board_part $board [current_project] }
set_property ip_repo_paths [file join $build ip] [current_project]
update_ip_catalog
create_bd_design draft_card_bd

set ps [create_bd_cell -type ip -vlnv xilinx.com:ip:zynq_ultra_ps_e ps]
if {$board ne ""} {
    apply_bd_automation -rule xilinx.com:bd_rule:zynq_ultra_ps_e \
        -config {apply_board_preset 1} $ps
}
set settings [list CONFIG.PSU__USE__M_AXI_GP0 1 CONFIG.PSU__USE__M_AXI_GP1 0 \
    CONFIG.PSU__USE__M_AXI_GP2 0 CONFIG.PSU__USE__IRQ0 1 \
    CONFIG.PSU__FPGA_PL0_ENABLE 1 \
    CONFIG.PSU__CRL_APB__PL0_REF_CTRL__FREQMHZ [expr {$clock_hz / 1e6}]]
for {set port 0} {$port < $num_ports} {incr port} {
    # HP0..HP3 are S_AXI_GP2..GP5 in the tool's names; 128 bits wide.
    lappend settings CONFIG.PSU__USE__S_AXI_GP[expr {$port + 2}] 1
    lappend settings CONFIG.PSU__SAXIGP[expr {$port + 2}]__DATA_WIDTH 128
}
set_property -dict $settings $ps

set card [create_bd_cell -type ip -vlnv $vlnv draft_card_1]
set reset [create_bd_cell -type ip -vlnv xilinx.com:ip:proc_sys_reset reset]
connect_bd_net [get_bd_pins ps/pl_clk0] [get_bd_pins draft_card_1/ap_clk] \
    [get_bd_pins reset/slowest_sync_clk] [get_bd_pins ps/maxihpm0_fpd_aclk]
connect_bd_net [get_bd_pins ps/pl_resetn0] [get_bd_pins reset/ext_reset_in]
connect_bd_net [get_bd_pins reset/peripheral_aresetn] [get_bd_pins draft_card_1/ap_rst_n]
connect_bd_net [get_bd_pins draft_card_1/interrupt] [get_bd_pins ps/pl_ps_irq0]

apply_bd_automation -rule xilinx.com:bd_rule:axi4 \
    -config [list Master /ps/M_AXI_HPM0_FPD Slave /draft_card_1/s_axi_control Clk /ps/pl_clk0] \
    [get_bd_intf_pins draft_card_1/s_axi_control]
for {set port 0} {$port < $num_ports} {incr port} {
    set hp [get_bd_intf_pins ps/S_AXI_HP${port}_FPD]
    connect_bd_net [get_bd_pins ps/pl_clk0] [get_bd_pins ps/saxihp${port}_fpd_aclk]
    connect_bd_intf_net [get_bd_intf_pins [format "draft_card_1/m%02d_axi" $port]] $hp
}
assign_bd_address
validate_bd_design
save_bd_design

make_wrapper -files [get_files draft_card_bd.bd] -top -import
update_compile_order -fileset sources_1
launch_runs impl_1 -to_step write_bitstream -jobs 8
wait_on_run impl_1
if {[get_property PROGRESS [get_runs impl_1]] ne "100%"} { error "implementation failed" }
open_run impl_1
report_utilization -hierarchical -file [file join $build utilization.rpt]
report_timing_summary -file [file join $build timing.rpt]
set run_dir [get_property DIRECTORY [get_runs impl_1]]
file copy -force [glob [file join $run_dir *.bit]] [file join $build draft_card.bit]
file copy -force [glob [file join $build bd_project *.gen sources_1 bd draft_card_bd hw_handoff *.hwh]] \
    [file join $build draft_card.hwh]
puts "$build/draft_card.bit and .hwh: copy both to the board"
