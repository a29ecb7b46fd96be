// The files of main/serve/page/ as bytes, and a table of them: name, bytes, size. Declared in main/serve/page.cpp.
    .macro page_file name
    .section .rodata
.Lname\@:
    .asciz "\name"
.Lbytes\@:
    .incbin "main/serve/page/\name"
.Lend\@:
    .section .data.rel.ro, "aw"
    .quad .Lname\@, .Lbytes\@, .Lend\@ - .Lbytes\@
    .endm

    .global chaski_page_begin
    .global chaski_page_end
    .section .data.rel.ro, "aw"
    .balign 8
chaski_page_begin:
    page_file "index.html"
    page_file "page.css"
    page_file "text.css"
    page_file "icon.svg"
    page_file "answers.js"
    page_file "api.js"
    page_file "dom.js"
    page_file "keys.js"
    page_file "markdown.js"
    page_file "messages.js"
    page_file "page.js"
    page_file "panel.js"
    page_file "remote.js"
    page_file "replay.js"
    page_file "settings.js"
    page_file "sidebar.js"
    page_file "store.js"
    page_file "tokens.js"
    page_file "transfer.js"
    page_file "tree.js"
    .section .data.rel.ro, "aw"
chaski_page_end:
    .section .note.GNU-stack, "", %progbits
