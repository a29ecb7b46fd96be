document.body.append("chaski");
